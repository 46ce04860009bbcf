// KL divergences of many files from one: the base's logits are made once and kept (scored tokens x vocabulary x 4
// bytes), where `assay perplexity --against`
// runs the base anew for each file. Chunks, scored tokens and divergences are that command's.   usage: divergences BASE TEXT CHUNK_TOKENS N_CHUNKS THREADS
// Each line of standard input is a file's path; its answer is a line: the divergence of every scored token, or "error:
// ...".
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "assay/context.h"
#include "assay/model.h"
#include "assay/score.h"
#include "assay/tokenizer.h"

namespace {

using assay::TokenId;

struct Text {
  std::vector<TokenId> ids;
  int64_t n_chunk = 0, n_chunks = 0;
  int64_t scored_of_chunk() const { return n_chunk - 1 - n_chunk / 2; }
};

// see(i, logits) of every scored token.
template <class See>
void each_scored(const std::shared_ptr<const assay::Model>& model, const Text& text, int n_threads, const See& see) {
  assay::ContextOptions options;
  options.n_ctx = text.n_chunk;
  options.n_threads = n_threads;
  assay::Context context(model, options);
  const auto& tokenizer = model->tokenizer();
  int64_t row = 0;
  for (int64_t i = 0; i < text.n_chunks; ++i) {
    const auto begin = text.ids.begin() + i * text.n_chunk;
    std::vector<TokenId> tokens(begin, begin + text.n_chunk);
    if (tokenizer->adds_bos() && tokenizer->bos()) tokens.front() = *tokenizer->bos();
    context.clear();
    const std::span<const TokenId> all(tokens);
    const size_t n_first = static_cast<size_t>(text.n_chunk / 2);
    context.decode(all.first(n_first));
    context.decode_all(all.subspan(n_first, static_cast<size_t>(text.scored_of_chunk())),
                       [&](int64_t, std::span<const double> logits) { see(row++, logits); });
  }
}

class Base {
 public:
  Base(const std::string& path, const Text& text, int n_threads) : text_(text), n_threads_(n_threads) {
    const auto model = assay::Model::load(path);
    vocab_size_ = model->vocab_size();
    logits_.reserve(static_cast<size_t>(text.n_chunks * text.scored_of_chunk() * vocab_size_));
    each_scored(model, text, n_threads, [&](int64_t, std::span<const double> logits) {
      for (const double x : logits) logits_.push_back(static_cast<float>(x));  // floats they were
      totals_.push_back(assay::log_sum_exp(logits));
    });
  }

  std::string divergences(const std::string& path) const {
    const auto model = assay::Model::load(path);
    if (model->vocab_size() != vocab_size_) throw std::runtime_error(path + ": another vocabulary");
    std::string line;
    each_scored(model, text_, n_threads_, [&](int64_t i, std::span<const double> logits) {
      char text[32];
      std::snprintf(text, sizeof text, "%s%.9g", i == 0 ? "" : " ", divergence(static_cast<size_t>(i), logits));
      line += text;
    });
    return line;
  }

 private:
  double divergence(size_t i,
                    std::span<const double> logits) const {  // sum p (base - logits) - (total of the base - total)
    const float* base = logits_.data() + i * static_cast<size_t>(vocab_size_);
    double sum = 0;
    for (size_t j = 0; j < logits.size(); ++j) {
      const double p = std::exp(base[j] - totals_[i]);
      if (p != 0) sum += p * (base[j] - logits[j]);
    }
    const double found = sum - (totals_[i] - assay::log_sum_exp(logits));
    return found < 0 ? 0 : found;
  }

  const Text& text_;
  int n_threads_;
  int64_t vocab_size_ = 0;
  std::vector<float> logits_;
  std::vector<double> totals_;
};

Text read_text(const std::string& base, const char* path, int64_t n_chunk, int64_t n_chunks) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(std::string(path) + ": cannot be read");
  std::string whole{std::istreambuf_iterator<char>(in), {}};
  if (!whole.empty() && whole.back() == '\n') whole.pop_back();
  const auto model = assay::Model::load(base);
  if (!model->tokenizer()) throw std::runtime_error(base + ": no tokenizer");
  Text text{model->tokenizer()->encode(whole), n_chunk, n_chunks};
  if (n_chunk < 3 || n_chunks < 1 || static_cast<int64_t>(text.ids.size()) / n_chunk < n_chunks) {
    throw std::runtime_error("needs 1 to " +
                             std::to_string(static_cast<int64_t>(text.ids.size()) / (n_chunk < 3 ? 3 : n_chunk)) +
                             " chunks of 3 tokens or more");
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "usage: divergences BASE TEXT CHUNK_TOKENS N_CHUNKS THREADS\n"), 2;
  try {
    const Text text = read_text(argv[1], argv[2], std::atoll(argv[3]), std::atoll(argv[4]));
    const Base base(argv[1], text, std::atoi(argv[5]));
    for (std::string path; std::getline(std::cin, path);) {
      try {
        std::cout << base.divergences(path) << std::endl;
      } catch (const std::exception& e) {
        std::cout << "error: " << e.what() << std::endl;
      }
    }
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "divergences: %s\n", e.what()), 1;
  }
}
