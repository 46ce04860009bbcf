// Graphs: run as what they were recorded from, and no more of them than may be, the least recently run going first.
#include "backend/cuda/runtime/graphs.h"

#include "backend/cuda/runtime/device_test.h"

namespace assay::backend::cuda {
namespace {

TEST(CudaGraphs, TheOneThatWasNotRunForLongestGoes) {
  ASSAY_REQUIRE_GPU();
  const Stream stream;
  const DeviceBuffer place(sizeof(int), "a test");
  Graphs graphs;
  int n_queued = 0;
  const auto run = [&](int i) {
    GraphKey key;
    key.n_tokens = i;
    const bool from_graph = graphs.run(key, stream.get(), [&](bool) {
      ++n_queued;
      check(cudaMemsetAsync(place.data(), i, 1, stream.get()), "queueing a test's work");
    });
    stream.wait();
    EXPECT_EQ(download<unsigned char>(place.data(), 1)[0], static_cast<unsigned char>(i));
    return from_graph;
  };
  const auto n = static_cast<int>(kGraphsMax);
  for (int i = 0; i < n; ++i) EXPECT_FALSE(run(i));
  for (int i = 0; i < n; ++i) EXPECT_TRUE(run(i));
  EXPECT_EQ(n_queued, 2 * n);
  EXPECT_TRUE(run(0));
  EXPECT_FALSE(run(n));  // in the place of 1
  EXPECT_TRUE(run(0));
  EXPECT_TRUE(run(2));
  EXPECT_EQ(n_queued, 2 * n + 1);
  EXPECT_FALSE(run(1));
}

}  // namespace
}  // namespace assay::backend::cuda
