// The expressions are facts of the models' own tokenizer.json files (Hugging Face); the names, and
// which models share one, are those of llama.cpp 0.5.0. Where llama.cpp only comes near an
// expression because of its engine, the model's own is used here. Runs are possessive, or searches
// skip what they have scanned, wherever that changes no match but bounds the time.
#include "text/pre_tokenizers.h"

#include <algorithm>
#include <array>

namespace assay::text {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// "[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]" is written as what it leaves out.
constexpr std::string_view kKimiK2 =
    R"(\p{sc:Han}+|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{C}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{sc:Han}]*[^\p{C}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{sc:Han}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{C}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{sc:Han}]+[^\p{C}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{sc:Han}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kChineseJapanese = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kChineseKorean = R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

constexpr Step kGpt2Steps[] = {{kGpt2}};
constexpr Step kLlama3Steps[] = {{kLlama3}};
constexpr Step kQwen2Steps[] = {{kQwen2}};
constexpr Step kGpt4oSteps[] = {{kGpt4o}};
constexpr Step kTekkenSteps[] = {{kTekken}};
constexpr Step kKimiK2Steps[] = {{kKimiK2}};
constexpr Step kDigitSteps[] = {{R"(\p{N})"}, {kGpt2}};
constexpr Step kDefaultSteps[] = {{R"([\p{P}$+<=>^~|]+)"}, {kGpt2}, {R"(\p{N}+)"}, {R"([0-9][0-9][0-9])"}};
constexpr Step kFalconSteps[] = {{R"([\p{P}$+<=>^~|`]+)"}, {kGpt2}, {R"([0-9][0-9][0-9])"}};
constexpr Step kDeepseekCoderSteps[] = {
    {R"([\r\n])"}, {R"(\s?\p{L}+)"}, {R"(\s?\p{P}+)"}, {kChineseKorean}, {R"(\p{N})"}};
constexpr Step kDeepseekLlmSteps[] = {
    {R"([\r\n])"},
    {R"(\s?[A-Za-z)"
     R"(\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
     R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
     R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
     R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
     R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
     R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
     R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
     R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})"
     R"(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
     R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"
     R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
     R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
     R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
     R"(]+)"},
    {R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)"},
    {R"(\s++(?:\z|(*SKIP)(*FAIL)))"},
    {kChineseKorean},
    {R"(\p{N}+)"}};
constexpr Step kDeepseekV3Steps[] = {
    {R"(\p{N}{1,3})"},
    {kChineseJapanese},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr Step kSpark25Steps[] = {
    {R"(\p{N}{1,3})"},
    {kChineseJapanese},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|)"
     R"([\r\n]|\s+(?!\S)|\s+)"},
    {R"(\p{N})"}};
constexpr Step kYoutuSteps[] = {
    {R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|)"
     R"([\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|)"
     R"([\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"},
    {kYoutu}};
constexpr Step kQwen35Steps[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)";
constexpr Step kBloomSteps[] = {{kBloom}};
constexpr Step kVikingSteps[] = {{kBloom}, {R"(\p{N})"}};
constexpr Step kChameleonSteps[] = {{R"(<sentinel:[0-9]+>)"},    {R"(IMGIMG[A-I]{1,4}Z)"},
                                    {R"([\t\n]|    |  )"},       {R"(\p{N})"},
                                    {R"([\p{P}!-/:-@\[-`{-~])"}, {kGpt2}};
// "\d{1,3}(?=(?:\d{3})*\b)": a run of digits at whose end a word ends is cut in threes from the
// right; another stays whole here.
constexpr Step kTinyAyaSteps[] = {
    {R"(\d++(?:(?![\p{Alphabetic}\p{M}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}])|(*SKIP)(*FAIL)))"},
    {R"(\A\d{4,}\z)", Cut::threes},
    {kGpt4o}};
// "(?=(\d{3})+(?!\d))" cuts before every place from which a multiple of three digits is left.
constexpr Step kSuperBpeSteps[] = {{R"(\p{N}+)"}, {R"(\d+)", Cut::threes}};
constexpr Step kBailingSteps[] = {
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}};
constexpr Step kSeedCoderSteps[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr Step kUfakzekaSteps[] = {
    {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr Step kLagunaSteps[] = {{R"([^\n]+|\n+)"}, {kQwen2}};
constexpr Step kExaoneMoeSteps[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}|)"
     R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}};
constexpr Step kMiniCpm5Steps[] = {
    {R"(\p{N}{1,3})"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
// Blanks in pieces of 512, 256, ... 4, then 2 and 1: taken from the runs that llama3's expression
// finds, those without a line end.
constexpr Step kJais2Steps[] = {
    {kLlama3}, {R"(\A(?s:.*)[\r\n\S](?s:.*)|\s{512}|\s{256}|\s{128}|\s{64}|\s{32}|\s{16}|\s{8}|\s{4}|\s{1,2})"}};

struct Named {
  std::string_view names;  // separated by blanks
  std::span<const Step> steps;
  bool adds_bos = false;
  bool ignores_merges = false;
};

constexpr std::array kAll = {
    Named{"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", kLlama3Steps, true, true},
    Named{"dbrx smaug-bpe chatglm-bpe", kLlama3Steps},
    Named{"glm4 glm5", kLlama3Steps, false, true},
    Named{"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe "
          "gigachat a.x-4.0 mellum "
          "modern-bert exaone4 mpt olmo jais trillion granite-docling",
          kGpt2Steps},
    Named{"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", kDigitSteps},
    Named{"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", kQwen2Steps},
    Named{"qwen35", kQwen35Steps},
    Named{"deepseek-coder", kDeepseekCoderSteps},
    Named{"deepseek-llm", kDeepseekLlmSteps},
    Named{"deepseek-v3 hunyuan-dense joyai-llm hy_v4", kDeepseekV3Steps},
    Named{"spark2_5", kSpark25Steps},
    Named{"youtu", kYoutuSteps, false, true},
    Named{"falcon", kFalconSteps},
    Named{"default", kDefaultSteps},
    Named{"gpt-4o llama4 kanana2 talkie minimax-m2", kGpt4oSteps},
    Named{"granite-embed-multi-97m", kGpt4oSteps, false, true},
    Named{"tekken", kTekkenSteps, true, true},
    Named{"poro-chat bloom gpt3-finnish", kBloomSteps},
    Named{"viking", kVikingSteps},
    Named{"chameleon", kChameleonSteps, true, false},
    Named{"tiny_aya cohere2moe", kTinyAyaSteps},
    Named{"kimi-k2", kKimiK2Steps},
    Named{"superbpe", kSuperBpeSteps},
    Named{"bailingmoe bailingmoe2 llada-moe", kBailingSteps},
    Named{"seed-coder", kSeedCoderSteps},
    Named{"ufakzeka", kUfakzekaSteps},
    Named{"laguna", kLagunaSteps},
    Named{"exaone-moe", kExaoneMoeSteps},
    Named{"minicpm5", kMiniCpm5Steps, false, true},
    Named{"jais-2", kJais2Steps},
};

// Calls visit(name) for each name of an entry until it returns true.
template <class Visit>
bool any_name(std::string_view names, Visit visit) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (visit(names.substr(0, end))) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

std::optional<PreTokenizerRules> find_pre_tokenizer(std::string_view name) {
  for (const Named& entry : kAll) {
    if (any_name(entry.names, [&](std::string_view one) { return one == name; })) {
      return PreTokenizerRules{entry.steps, entry.adds_bos, entry.ignores_merges};
    }
  }
  return std::nullopt;
}

std::vector<std::string_view> pre_tokenizer_names() {
  std::vector<std::string_view> all;
  for (const Named& entry : kAll) {
    any_name(entry.names, [&](std::string_view one) {
      all.push_back(one);
      return false;
    });
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace assay::text
