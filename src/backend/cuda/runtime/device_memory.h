// Memory of the device and of the host beside it, as owning types, and the one place where a status of the CUDA runtime
// becomes an Error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace assay::backend::cuda {

// Error(device) that says what was being done. A failed kernel shows at the next call that waits for it.
void check(cudaError_t status, const char* doing);

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(size_t bytes, const std::string& purpose);  // Error(out_of_memory) with need and have
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Host memory that the device copies from and to without the processor.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(size_t bytes, const std::string& purpose);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const noexcept { return stream_; }
  void wait() const;  // Error(device) where a kernel failed

 private:
  cudaStream_t stream_ = nullptr;
};

// A place on a stream that can be waited for.
class Event {
 public:
  enum class Wait { awake, asleep };  // how wait() spends its time: asleep, it takes longer to notice
  Event() : Event(Wait::awake) {}
  explicit Event(Wait how);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  void record(cudaStream_t stream);
  void wait() const;  // returns at once where nothing was recorded
  bool is_over() const;
  void hold(cudaStream_t stream) const;  // what is queued there from now on waits; the stream may be another device's

 private:
  cudaEvent_t event_ = nullptr;
};

std::string shown_bytes(size_t bytes);  // "1.25 GiB"

}  // namespace assay::backend::cuda
