// See probes.h; probe_ids of stages.h.
#include "verify/probes.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/error.h"
#include "engine/model_state.h"
#include "verify/stages/stages.h"

namespace assay::verify {

std::string_view english_paragraph() {
  return "The river rises in the hills above the old town and runs south for about forty miles "
         "before it reaches the sea. In spring, when the "
         "snow melts, the water is high and cold, and the people who live near the banks watch it "
         "carefully. In summer it is slow and clear, "
         "and children swim in the pools below the bridge. The first bridge was built of wood more "
         "than two hundred years ago. It was washed "
         "away in a flood, and the stone bridge that stands there today took its place. Every "
         "morning a small market opens at its northern "
         "end, where farmers from the valley sell bread, cheese, apples and flowers.";
}

std::vector<std::string> special_texts(const Tokenizer& tokenizer, size_t n_max) {
  std::vector<TokenId> ids;
  const auto add = [&](std::optional<TokenId> id) {
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  };
  add(tokenizer.bos());
  add(tokenizer.eos());
  for (const TokenId id : tokenizer.end_of_generation()) add(id);
  for (TokenId id = 0; id < tokenizer.vocab_size() && ids.size() < n_max; ++id) {
    if (tokenizer.kind(id) == TokenKind::control) add(id);
  }
  std::vector<std::string> texts;
  for (const TokenId id : ids) {
    if (tokenizer.kind(id) == TokenKind::control && !tokenizer.text(id).empty() && texts.size() < n_max) {
      texts.emplace_back(tokenizer.text(id));
    }
  }
  return texts;
}

std::vector<std::string> probe_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts = {"",
                                    " ",
                                    "  ",
                                    "   ",
                                    "\n",
                                    "\n\n",
                                    "\n\n\n",
                                    "\t",
                                    "\t\t",
                                    " \n",
                                    "\n ",
                                    " \t \n\n ",
                                    "\r\n",
                                    "a",
                                    " a",
                                    "  a",
                                    "a ",
                                    "a  b",
                                    "a\nb",
                                    "Hello, world!",
                                    " Hello",
                                    "Hello  world",
                                    "HELLO WORLD",
                                    "don't we'll I'M they've it's",
                                    "1",
                                    "12",
                                    "123",
                                    "1234",
                                    "12345",
                                    "123456",
                                    "3333+777=4110",
                                    "v1.2.3-rc4",
                                    "0x1F 1e-5",
                                    "x = (a + b) * c; // note",
                                    "if (x) {\n\treturn y;\n}\n",
                                    "        indented",
                                    "snake_case camelCase",
                                    "http://example.org/a?b=c&d=%20",
                                    "...!!!---___===",
                                    "?!?!",
                                    "\"quoted\" 'text' `code`",
                                    "naïve café Ångström",
                                    "Ελληνικά Русский",
                                    "你好，世界",
                                    "日本語のテキスト",
                                    "한국어 문장",
                                    "ไม่ต้อง",
                                    "हिन्दी पाठ",
                                    "שלום עולם",
                                    "مرحبا بالعالم 123",
                                    "e\xCC\x81 a\xCC\x8A\xCC\xA7",
                                    "👍",
                                    "👩‍👩‍👧‍👦 🏳️‍🌈 👋🏽",
                                    "½ ² ⅷ ٣٤٥",
                                    "a\xC2\xA0"
                                    "b\xE2\x80\x89"
                                    "c\xE3\x80\x80"
                                    "d",
                                    "\xEF\xBB\xBFtext",
                                    "ﬁne ﬂow",
                                    "∑∫√∞≠≤",
                                    "\xFF",
                                    "a\x80z",
                                    "\xC3",
                                    "\xE2\x82",
                                    "\xF0\x9F\x91",
                                    "\xED\xA0\x80",
                                    "ok \xC0\xAF ok"};
  texts.emplace_back(english_paragraph().substr(0, 117));
  for (const std::string& special : special_texts(tokenizer, 6)) {
    texts.push_back(special);
    texts.push_back("a" + special + "b");
    texts.push_back(special.substr(0, special.size() - 1));
  }
  return texts;
}

int64_t prompt_size(const Subject& subject, const StageRun& run) {
  if (run.prompt.empty() || !subject.encode) return 0;
  const auto n = static_cast<int64_t>(
      subject.encode(run.prompt, {.parse_special = false, .add_bos = std::nullopt, .add_eos = false}).size());
  const int64_t n_ctx = subject.model->state().n_ctx_usable();
  if (n > n_ctx) {
    throw Error(Errc::bad_request,
                fmt::format("the prompt: needs at most the {} tokens of the model's context, found {}", n_ctx, n));
  }
  return n;
}

int64_t probe_size(const Subject& subject, const StageRun& run, int64_t quick, int64_t usual) {
  constexpr int64_t kBeyond = 16;  // positions past the edge
  int64_t n = std::max(run.quick ? quick : usual, prompt_size(subject, run));
  for (const ops::CacheLayer& layer : subject.model->state().built.plan.cache_layers) {
    if (!run.quick && layer.window <= kProbedWindowMax) n = std::max(n, layer.window + kBeyond);
  }
  return std::min(n, subject.model->state().n_ctx_usable());
}

std::vector<TokenId> probe_ids(const Subject& subject, const StageRun& run, int64_t n_min, int64_t n_max) {
  std::vector<TokenId> ids;
  const int64_t n_vocab = subject.model->vocab_size();
  if (subject.encode) {
    std::string text = run.prompt;
    if (text.empty()) {
      text =
          "Hello,  world!\n\n\tIn 1998 3333+777 people met; naïve café, 你好 👍🏽 עולם. <|user|> "
          "</s>\n";
      text += english_paragraph();
    }
    do {
      const std::vector<TokenId> more = subject.encode(
          text,
          {.parse_special = false, .add_bos = ids.empty() ? std::nullopt : std::optional(false), .add_eos = false});
      if (more.empty()) break;
      ids.insert(ids.end(), more.begin(), more.end());
    } while (static_cast<int64_t>(ids.size()) < n_min);
  }
  for (uint32_t i = 1; static_cast<int64_t>(ids.size()) < n_min;
       ++i) {  // no tokenizer, or an empty prompt: ids all over the vocabulary
    ids.push_back(static_cast<TokenId>(uint64_t{i} * 2654435761u % static_cast<uint64_t>(n_vocab)));
  }
  if (static_cast<int64_t>(ids.size()) > n_max) ids.resize(static_cast<size_t>(n_max));
  return ids;
}

}  // namespace assay::verify
