// See repository.h.
#include "store/repository.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "assay/error.h"
#include "assay/pull.h"
#include "assay/store.h"
#include "base/shown.h"
#include "store/json_text.h"
#include "store/names.h"

namespace assay::store {
namespace {

namespace json = boost::json;

[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::bad_request, text); }

// What stands before a separator, which goes with it; all where there is none.
std::string_view cut_before(std::string_view& rest, std::string_view separator) {
  const size_t at = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, at);
  rest.remove_prefix(std::min(at + separator.size(), rest.size()));
  return part;
}

// A page of Hugging Face's site that means a repository or a file of its main branch; nothing for other addresses.
std::optional<Wanted> parse_page(std::string_view rest) {
  rest = rest.substr(0, rest.find_first_of("?#"));
  cut_before(rest, "://");
  const std::string host = lower(cut_before(rest, "/"));
  if (host != "huggingface.co" && host != "hf.co") return std::nullopt;
  const std::string user(cut_before(rest, "/"));
  Wanted wanted;
  wanted.repository = fmt::format("{}/{}", user, cut_before(rest, "/"));
  if (!is_repository(wanted.repository)) return std::nullopt;
  const std::string_view kind = cut_before(rest, "/"), branch = cut_before(rest, "/");
  if (kind.empty() || (kind == "tree" && branch == "main" && rest.empty())) return wanted;
  if ((kind != "blob" && kind != "resolve") || branch != "main") return std::nullopt;
  wanted.quant = decode_percent(rest);
  return wanted;
}

// A model of a repository: its parts by number.
struct Candidate {
  std::string stem, quant, folder;
  int64_t count = 1;
  std::map<int64_t, RepositoryFile> parts;

  std::string path() const { return folder.empty() ? stem : folder + "/" + stem; }
  std::string label() const { return quant.empty() ? stem : quant; }
};

std::vector<Candidate> candidates_in(const std::vector<RepositoryFile>& files) {
  std::map<std::pair<std::string, int64_t>, Candidate> found;  // by path and number of parts
  for (const RepositoryFile& file : files) {
    const size_t slash = file.path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : file.path.substr(0, slash);
    const std::string file_name = file.path.substr(slash == std::string::npos ? 0 : slash + 1);
    const std::string name = lower(file_name);
    if (name.starts_with("mmproj") || name.find("imatrix") != std::string::npos)
      continue;  // encoders of pictures, statistics: no models
    const PartName part = part_name(file_name).value_or(PartName{stem_of(file_name), 1, 1});
    Candidate& candidate = found[{folder + "/" + part.stem, part.count}];
    candidate.folder = folder;
    candidate.stem = part.stem;
    candidate.quant = quant_of(part.stem);
    candidate.count = part.count;
    candidate.parts[part.number] = file;
  }
  std::vector<Candidate> result;
  for (auto& [key, candidate] : found) result.push_back(std::move(candidate));
  return result;
}

std::string labels_of(const std::vector<Candidate>& candidates) {
  std::map<std::string, int> n_of_label;
  for (const Candidate& candidate : candidates) ++n_of_label[lower(candidate.label())];
  std::string text;
  for (const Candidate& candidate : candidates) {
    const bool is_alone = n_of_label[lower(candidate.label())] == 1;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", is_alone ? candidate.label() : candidate.path() + ".gguf");
  }
  return text;
}

bool means(const Candidate& candidate, const std::string& quant) {
  const auto is = [&](const std::string& text) { return equal_without_case(quant, text); };
  if (is(candidate.quant) || is(candidate.stem) || is(candidate.stem + ".gguf") || is(candidate.path()) ||
      is(candidate.path() + ".gguf"))
    return true;
  return std::any_of(candidate.parts.begin(), candidate.parts.end(),
                     [&](const auto& part) { return is(part.second.path); });
}

// The one whose weights have nearly as many bits as the default's; of two, the larger.
const Candidate& nearest_to_default(const std::vector<Candidate>& candidates) {
  const double wanted = bits_of_quant(kDefaultQuant);
  const auto distance = [&](const Candidate& candidate) {
    const double bits = bits_of_quant(candidate.quant);
    return std::pair(bits > 0 ? std::abs(bits - wanted) : 1000.0, -bits);
  };
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](const Candidate& a, const Candidate& b) { return distance(a) < distance(b); });
}

}  // namespace

Wanted parse_what(const std::string& what) {
  if (what.find("://") != std::string::npos) {
    const std::string scheme = lower(what.substr(0, what.find("://")));
    if (scheme != "http" && scheme != "https")
      refuse(fmt::format("{}: only http and https are fetched", base::shown(what)));
    if (auto page = parse_page(what)) return *page;
    Wanted wanted;
    wanted.url = what;
    return wanted;
  }
  std::string_view rest = what;
  for (const std::string_view host : {"hf.co/", "huggingface.co/"}) {
    if (begins_without_case(rest, host)) rest.remove_prefix(host.size());
  }
  Wanted wanted;
  wanted.repository = cut_before(rest, ":");
  wanted.quant = rest;
  for (const ShortName& known : short_names()) {
    if (!equal_without_case(wanted.repository, known.name)) continue;
    wanted.short_name = known.name;
    wanted.repository = known.repository;
    return wanted;
  }
  if (is_repository(wanted.repository)) return wanted;
  std::string names;
  for (const ShortName& known : short_names()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  refuse(
      fmt::format("{}: needs http(s)://..., user/repo:QUANT of Hugging Face, or one of {}", base::shown(what), names));
}

std::vector<RepositoryFile> parse_tree(std::string_view text) {
  const auto value = parse_json(text);
  if (!value || !value->is_array()) throw NetworkError("the list of the repository's files is no JSON array");
  std::vector<RepositoryFile> files;
  for (const json::value& item : value->get_array()) {
    if (!item.is_object() || text_of(item.get_object(), "type") != "file") continue;
    RepositoryFile file;
    file.path = text_of(item.get_object(), "path");
    if (!is_gguf_name(file.path)) continue;
    if (!is_safe_relative_path(file.path))
      throw NetworkError(fmt::format("the list of the repository's files names {}, which would leave its folder",
                                     base::shown(file.path)));
    file.bytes = count_of(item.get_object(), "size");
    const json::value* lfs = item.get_object().if_contains("lfs");
    if (lfs != nullptr && lfs->is_object()) {
      file.bytes = std::max(file.bytes, count_of(lfs->get_object(), "size"));
      const std::string digest = lower(text_of(lfs->get_object(), "oid"));
      if (is_sha256(digest)) file.sha256 = digest;
    }
    files.push_back(std::move(file));
  }
  return files;
}

Choice choose(const std::vector<RepositoryFile>& files, const std::string& quant, const std::string& repository) {
  const std::vector<Candidate> all = candidates_in(files);
  if (all.empty()) refuse(fmt::format("{}: has no GGUF model", repository));
  std::vector<Candidate> chosen;
  const std::string wanted = quant.empty() ? kDefaultQuant : quant;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
               [&](const Candidate& candidate) { return means(candidate, wanted); });
  Choice choice;
  if (chosen.empty() && quant.empty()) {
    chosen.push_back(nearest_to_default(all));
    choice.remark = fmt::format("{}: has no {}; taking {} of {}", repository, kDefaultQuant, chosen.front().label(),
                                labels_of(all));
  }
  if (chosen.empty())
    refuse(fmt::format("{}: has no {}; there are {}", repository, base::shown(wanted), labels_of(all)));
  if (chosen.size() > 1)
    refuse(fmt::format("{}: has several files for {}; name one of {}", repository, base::shown(wanted),
                       labels_of(chosen)));
  const Candidate& one = chosen.front();
  choice.quant = one.label();
  for (int64_t number = 1; number <= one.count; ++number) {
    const auto part = one.parts.find(number);
    if (part == one.parts.end())
      refuse(fmt::format("{}: {} has no part {} of {}", repository, one.stem, number, one.count));
    choice.parts.push_back(part->second);
  }
  return choice;
}

std::string encode_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const char l = static_cast<char>(c | 0x20);
    const bool is_plain =
        (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string decode_percent(std::string_view text) {
  const auto value_of = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_code =
        text[i] == '%' && i + 2 < text.size() && value_of(text[i + 1]) >= 0 && value_of(text[i + 2]) >= 0;
    out += is_code ? static_cast<char>(value_of(text[i + 1]) * 16 + value_of(text[i + 2])) : text[i];
    if (is_code) i += 2;
  }
  return out;
}

std::string file_name_of(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  cut_before(url, "://");
  const size_t slash = url.rfind('/');
  return slash == std::string_view::npos ? std::string() : decode_percent(url.substr(slash + 1));
}

std::string with_file_name(std::string_view url, std::string_view file_name) {
  const size_t end = std::min(url.find_first_of("?#"), url.size());
  const size_t slash = url.substr(0, end).rfind('/');
  return fmt::format("{}{}{}", url.substr(0, slash + 1), encode_path(file_name), url.substr(end));
}

}  // namespace assay::store
