// Fetches models into our store: from an address, from Hugging Face by repository and quantisation, or by a short name.
// An interrupted fetch goes on where it was; a file stands under its name only once it is whole, checked and synced.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "assay/error.h"
#include "assay/store.h"

namespace assay {

// An Error of the code io that is not this machine's: a server could not be reached, or sent what cannot be used.
struct NetworkError : Error {
  explicit NetworkError(const std::string& what) : Error(Errc::io, what) {}
};

inline constexpr int kConnectionsMax = 32;

struct PullProgress {
  std::string file;  // its name in the folder
  int i_file = 0, n_files = 1;
  int64_t done_bytes = 0;
  int64_t total_bytes = -1;  // -1: the server does not say
};

struct PullOptions {
  std::string what;     // http(s)://..., user/repo[:QUANT], hf.co/user/repo[:QUANT], or a short name (store.h)[:QUANT]
  std::string folder;   // where the file goes; made where it is missing
  std::string sha256;   // what the file must have; empty: as Hugging Face's record says, unchecked where there is none
  std::string save_as;  // its name there, less .gguf; empty: as the server's address has it
  std::string endpoint = "https://huggingface.co";  // of Hugging Face
  std::string token;                                // sent to the endpoint's host alone, never along a redirect
  std::string http_proxy, https_proxy, all_proxy, no_proxy;
  std::string ca_file;    // certificates to trust in place of the system's
  int n_connections = 1;  // that fetch parts of a file at a time, where the server gives parts; up to kConnectionsMax
  double timeout_s = 30;  // without a byte for so long, it connects again
  double retry_wait_s = 0.5;  // before the second try; doubles up to 16 times as much
  std::function<void(const PullProgress&)> on_progress;
  std::function<void(const std::string&)> on_notice;  // a choice that was made, a try that failed: a line each
  std::function<bool()> cancelled;
};

struct PulledFile {
  std::string path, sha256, url;
  int64_t bytes = 0;
  bool was_there = false;  // and right, so that nothing was fetched
};

struct PullResult {
  std::vector<PulledFile> files;  // the first part first
  std::string repository, quant;  // of what came from Hugging Face
  int64_t fetched_bytes = 0;      // by this call
  bool cancelled = false;         // before all was there; what was fetched is kept for the next call
};

// Tries again after cuts, silences and refusals: ten times in a row without a new byte, three where the connection is
// refused. NetworkError after these, for other answers of a server, a wrong digest and what is no GGUF file, of which
// nothing is kept; Error(bad_request) where `what` means nothing or a quantisation is not there (with those that are);
// Error(io) where the disk has too little room or the folder cannot be written; Error(unsupported) in a build without
// libcurl.
PullResult pull(const PullOptions& options);

// The path of what such a pull has put into our store, without asking any server.
std::optional<std::string> find_pulled(const ModelStores& stores, const std::string& what);

// The default quantisation of a repository.
inline constexpr const char* kDefaultQuant = "Q4_K_M";

}  // namespace assay
