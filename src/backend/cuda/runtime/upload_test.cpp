// What arrives is what was sent; what arrives changed is an error; the sums of both sides agree over ragged lengths.
#include "backend/cuda/runtime/upload.h"

#include <numeric>

#include "assay/error.h"
#include "backend/cuda/runtime/device_test.h"
#include "support/random_numbers.h"

namespace assay::backend::cuda {
namespace {

std::vector<std::byte> random_bytes(size_t n, uint64_t seed) {
  test::Random random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  return bytes;
}

TEST(CudaUpload, BytesArriveThroughBothBuffers) {
  ASSAY_REQUIRE_GPU();
  const Stream stream;
  const std::vector<size_t> sizes = {1, 3, 4, 5, 1023, 4096, (size_t{1} << 20) + 7, (size_t{70} << 20) + 2};
  std::vector<std::vector<std::byte>> sent;
  std::vector<DeviceBuffer> targets;
  std::vector<int64_t> told;
  Upload upload(sizes.size(), stream.get(), [&](int64_t n_bytes) { told.push_back(n_bytes); });
  for (size_t i = 0; i < sizes.size(); ++i) {
    sent.push_back(random_bytes(sizes[i], i));
    targets.emplace_back(sizes[i], "a test");
    upload.send(targets[i].data(), sent[i], "piece " + std::to_string(i));
  }
  upload.finish();
  EXPECT_EQ(told.size(), sizes.size() + 2);  // the last piece takes three buffers
  EXPECT_EQ(told.back(), std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  for (size_t i = 0; i < sizes.size(); ++i)
    EXPECT_EQ(download<std::byte>(targets[i].data(), sizes[i]), sent[i]) << sizes[i];
}

TEST(CudaUpload, AChangedBitIsSeen) {
  ASSAY_REQUIRE_GPU();
  const Stream stream;
  std::vector<std::byte> bytes = random_bytes(10001, 1);
  const uint64_t right = sum_words(bytes, 0);
  for (const size_t at : {size_t{0}, size_t{5000}, size_t{10000}}) {
    bytes[at] ^= std::byte{1};
    const DeviceBuffer changed = upload(bytes), sum = upload(std::vector<unsigned long long>{0});
    add_word_sum(changed.data(), bytes.size(), sum.as<unsigned long long>(), stream.get());
    stream.wait();
    EXPECT_NE(download<unsigned long long>(sum.data(), 1)[0], right) << at;
    EXPECT_EQ(download<unsigned long long>(sum.data(), 1)[0], sum_words(bytes, 0)) << at;
    bytes[at] ^= std::byte{1};
  }
  std::swap(bytes[0], bytes[4]);  // words that change places
  EXPECT_NE(sum_words(bytes, 0), right);
}

}  // namespace
}  // namespace assay::backend::cuda
