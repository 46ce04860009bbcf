// Columns of shards by kernels that wait for one another: two and four shards, on GPUs of their own where there are as
// many, else all on one.
#include "backend/cuda/rows/gather.h"

#include "backend/cuda/runtime/device_test.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

struct Side {
  DeviceBuffer x, y, flags, round;
  PinnedBuffer timed_out;
  std::unique_ptr<Stream> stream;
};

std::vector<int> devices_of(int n) {
  const auto n_devices = static_cast<int>(find_devices().list.size());
  std::vector<int> devices;
  for (int i = 0; i < n; ++i) devices.push_back(n_devices >= n ? i : 0);
  for (const int a : devices) {
    cudaSetDevice(a);
    for (const int b : devices) {
      if (a != b) cudaDeviceEnablePeerAccess(b, 0);
    }
    cudaGetLastError();
  }
  return devices;
}

void check_gather(int n, int64_t n_rows, const std::vector<int64_t>& widths) {
  const std::vector<int> devices = devices_of(n);
  int64_t width = 0;
  for (const int64_t w : widths) width += w;
  std::vector<Side> sides(static_cast<size_t>(n));
  for (uint32_t round = 1; round <= 3; ++round) {
    const std::vector<float> expected = test::random_activations(n_rows * width, round);
    int64_t column = 0;
    std::vector<GatherTask> tasks(sides.size());
    for (size_t i = 0; i < sides.size(); ++i) {
      check(cudaSetDevice(devices[i]), "a test");
      std::vector<float> own;
      for (int64_t t = 0; t < n_rows; ++t) {
        const auto begin = expected.begin() + t * width + column;
        own.insert(own.end(), begin, begin + widths[i]);
      }
      Side& s = sides[i];
      s.x = upload(own);
      s.round = upload(std::vector<uint32_t>{round});
      if (round == 1) {
        s.stream = std::make_unique<Stream>();
        s.flags = upload(std::vector<uint32_t>(static_cast<size_t>(kGatherFlags), 0));
        s.timed_out = PinnedBuffer(4, "a test");
        *s.timed_out.as<uint32_t>() = 0;
      }
      s.y = poisoned(expected.size());
      GatherTask& task = tasks[i];
      task.x = s.x.as<float>(), task.round = s.round.as<uint32_t>(), task.timed_out = s.timed_out.as<uint32_t>();
      task.own_width = static_cast<int32_t>(widths[i]), task.column = static_cast<int32_t>(column),
      task.width = static_cast<int32_t>(width);
      task.n_rows = static_cast<int32_t>(n_rows), task.n_shards = n, task.i_shard = static_cast<int32_t>(i);
      column += widths[i];
      check(cudaDeviceSynchronize(), "a test");
    }
    for (size_t i = 0; i < sides.size(); ++i) {
      for (size_t q = 0; q < sides.size(); ++q)
        tasks[i].y[q] = sides[q].y.as<float>(), tasks[i].flags[q] = sides[q].flags.as<uint32_t>();
    }
    for (size_t i = 0; i < sides.size(); ++i) {
      check(cudaSetDevice(devices[i]), "a test");
      gather_columns(tasks[i], false, Queue(sides[i].stream->get()));
    }
    for (size_t i = 0; i < sides.size(); ++i) {
      check(cudaSetDevice(devices[i]), "a test");
      sides[i].stream->wait();
      EXPECT_EQ(*sides[i].timed_out.as<uint32_t>(), 0u);
      EXPECT_TRUE(same_floats(download<float>(sides[i].y.data(), expected.size()), expected))
          << n << " shards, shard " << i << ", " << n_rows << " rows";
    }
  }
  check(cudaSetDevice(0), "a test");
}

TEST(CudaGather, EveryShardHasAllColumns) {
  ASSAY_REQUIRE_GPU();
  check_gather(2, 1, {2048, 2048});
  check_gather(2, 8, {7168, 7168});
  check_gather(2, 3, {5, 8});
  check_gather(2, 1, {65536, 65536});
  check_gather(4, 1, {1024, 1024, 1024, 1024});
  check_gather(4, 5, {32, 64, 36, 64});
}

}  // namespace
}  // namespace assay::backend::cuda
