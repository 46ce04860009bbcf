// The goldens as structs: tests/data/goldens (real models, by an independent float64 engine) and goldens/tiny there
// (random models, by Hugging Face transformers). Needs Boost.JSON at link time.
#pragma once

#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace assay::test {

inline boost::json::object read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return boost::json::parse(text.str()).as_object();
}

inline std::vector<int32_t> to_ids(const boost::json::value& array) {
  std::vector<int32_t> ids;
  for (const boost::json::value& id : array.as_array()) ids.push_back(id.to_number<int32_t>());
  return ids;
}

inline std::vector<double> to_doubles(const boost::json::value& array) {
  std::vector<double> values;
  for (const boost::json::value& x : array.as_array()) values.push_back(x.to_number<double>());
  return values;
}

inline std::vector<std::pair<int32_t, double>> to_pairs(const boost::json::value& array) {
  std::vector<std::pair<int32_t, double>> pairs;
  for (const boost::json::value& x : array.as_array()) {
    pairs.emplace_back(x.as_array()[0].to_number<int32_t>(), x.as_array()[1].to_number<double>());
  }
  return pairs;
}

struct GoldenLayer {  // the residual stream after a layer, at the prompt's last token
  std::vector<double> first8;
  double l2 = 0;
};

struct GoldenPrompt {
  std::string name;
  std::vector<int32_t> ids;
  std::optional<double> mean_nll;  // a prompt of one token has none
  double logsumexp = 0;
  std::vector<std::pair<int32_t, double>> top10;  // token, logit
  std::vector<GoldenLayer> layers;
  std::vector<std::pair<int32_t, double>> greedy;  // token, margin to the second best
};

inline std::vector<GoldenPrompt> read_goldens(const std::filesystem::path& path) {
  std::vector<GoldenPrompt> prompts;
  const boost::json::object goldens = read_json(path);
  for (const boost::json::value& value : goldens.at("prompts").as_array()) {
    const boost::json::object& p = value.as_object();
    GoldenPrompt& prompt = prompts.emplace_back();
    prompt.name = p.at("name").as_string().c_str();
    prompt.ids = to_ids(p.at("ids"));
    if (!p.at("mean_nll").is_null()) prompt.mean_nll = p.at("mean_nll").to_number<double>();
    prompt.logsumexp = p.at("logsumexp").to_number<double>();
    prompt.top10 = to_pairs(p.at("top10"));
    for (const boost::json::value& layer : p.at("layers").as_array()) {
      prompt.layers.push_back({to_doubles(layer.at("first8")), layer.at("l2").to_number<double>()});
    }
    prompt.greedy = to_pairs(p.at("greedy"));
  }
  return prompts;
}

struct TinyGolden {
  std::vector<int32_t> ids;
  std::vector<std::vector<double>> logits_last3;
  std::vector<double> logsumexp;  // of every position
  std::vector<double> nll;        // of every next token
};

inline TinyGolden read_tiny_golden(const std::filesystem::path& path) {
  const boost::json::object golden = read_json(path);
  TinyGolden tiny{to_ids(golden.at("ids")), {}, to_doubles(golden.at("logsumexp")), to_doubles(golden.at("nll"))};
  for (const boost::json::value& row : golden.at("logits_last3").as_array())
    tiny.logits_last3.push_back(to_doubles(row));
  return tiny;
}

}  // namespace assay::test
