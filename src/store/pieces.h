// The rest of a file over several connections at a time: each asks for pieces of it, which are given on in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "store/http.h"

namespace assay::store {

struct PiecesRequest {
  std::string url;
  std::string version;  // that every reply must have, where it has one (HttpHead::version())
  int64_t begin = 0, total = 0;
  int n_connections = 2;
};

struct PiecesEnd {
  // complete: all of it was given on. stopped: a reply's status speaks against it, see head. cut, refused, forbidden,
  // cancelled: as of the last connection that was left.
  HttpEnd end = HttpEnd::complete;
  std::string problem;
  HttpHead head;            // of the last reply that was none of the file's pieces
  bool is_another = false;  // the server has another file by now
};

// take gets the bytes from begin on, in order, in the calling thread; what it throws comes through, and what was
// received in a row is given to it before an end that is not complete. A connection that fails without a byte is given
// up; the others go on with its piece. settings.cancelled is asked in the calling thread alone. Holds at most twice as
// many pieces as connections.
PiecesEnd fetch_pieces(const PiecesRequest& request, const HttpSettings& settings, const TakeBytes& take);

}  // namespace assay::store
