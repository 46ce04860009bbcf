// See device_memory.h.
#include "backend/cuda/runtime/device_memory.h"

#include <cstdio>
#include <utility>

#include "assay/error.h"

namespace assay::backend::cuda {

void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // what is reported is not reported again by the next call
  throw Error(Errc::device, std::string("CUDA failed while ") + doing + ": " + cudaGetErrorString(status) + " (" +
                                cudaGetErrorName(status) + ")");
}

std::string shown_bytes(size_t bytes) {
  char text[32];
  const double value = static_cast<double>(bytes);
  if (bytes >= size_t{1} << 30) {
    std::snprintf(text, sizeof text, "%.2f GiB", value / (1 << 30));
  } else {
    std::snprintf(text, sizeof text, "%.1f MiB", value / (1 << 20));
  }
  return text;
}

namespace {

[[noreturn]] void refuse_memory(size_t bytes, const std::string& purpose) {
  cudaGetLastError();
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  throw Error(
      Errc::out_of_memory,
      purpose + " needs " + shown_bytes(bytes) + " of the GPU's memory, " + shown_bytes(free_bytes) + " of " +
          shown_bytes(total) +
          " are free; fewer layers on the GPU (-ngl) or a smaller context (-c) need less, --backend cpu needs none");
}

}  // namespace

DeviceBuffer::DeviceBuffer(size_t bytes, const std::string& purpose) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) refuse_memory(bytes, purpose);
  check(status, "taking memory of the GPU");
  data_ = static_cast<std::byte*>(memory);
}
DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::PinnedBuffer(size_t bytes, const std::string& purpose) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(Errc::out_of_memory,
                purpose + " needs " + shown_bytes(bytes) + " of page-locked memory, which the system does not give");
  }
  check(status, "taking page-locked memory");
  data_ = static_cast<std::byte*>(memory);
}
PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::wait() const { check(cudaStreamSynchronize(stream_), "running kernels"); }

Event::Event(Wait how) {
  const unsigned flags = cudaEventDisableTiming | (how == Wait::asleep ? cudaEventBlockingSync : 0u);
  check(cudaEventCreateWithFlags(&event_, flags), "making an event");
}
Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}
void Event::record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "marking a place on a stream"); }
void Event::hold(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "waiting for another stream");
}
void Event::wait() const { check(cudaEventSynchronize(event_), "waiting for a copy"); }
bool Event::is_over() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status != cudaErrorNotReady) check(status, "asking for a copy");
  return status == cudaSuccess;
}

}  // namespace assay::backend::cuda
