// See pieces.h.
#include "store/pieces.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace assay::store {
namespace {

constexpr int64_t kPieceMin = 64 << 10, kPieceMax = 8 << 20;
constexpr int kPiecesPerConnection = 4;                // at least, where the file is large enough
constexpr auto kLook = std::chrono::milliseconds(50);  // how often a cancel is looked for

struct Piece {
  int64_t begin = 0, size = 0;
  std::vector<std::byte> bytes;  // of the connection that has it; of the caller once it is done
  bool is_taken = false, is_done = false;

  int64_t missing() const { return size - static_cast<int64_t>(bytes.size()); }
};

class Pieces {
 public:
  Pieces(const PiecesRequest& request, const HttpSettings& settings)
      : request_(request), cancelled_(settings.cancelled), next_begin_(request.begin),
        piece_bytes_(std::clamp((request.total - request.begin) / (kPiecesPerConnection * request.n_connections),
                                kPieceMin, kPieceMax)) {
    HttpSettings own = settings;
    own.cancelled = [this] { return is_stopped_.load(); };
    for (int i = 0; i < request.n_connections; ++i) connections_.push_back(std::make_unique<Http>(own));
  }

  PiecesEnd run(const TakeBytes& take) {
    n_alive_ = request_.n_connections;
    {
      struct Stopper {
        Pieces& pieces;
        ~Stopper() { pieces.stop(); }
      };
      std::vector<std::jthread> threads;  // joined after they were stopped
      const Stopper stopper{*this};
      for (auto& connection : connections_) threads.emplace_back([this, &connection] { work(*connection); });
      give_on(take);
    }
    if (thrown_) std::rethrow_exception(thrown_);
    while (!window_.empty()) {  // what is there in a row
      const bool is_whole = window_.front().missing() == 0;
      take(window_.front().bytes);
      if (!is_whole) break;
      window_.pop_front();
    }
    return std::move(end_);
  }

 private:
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    for_workers_.notify_all();
  }

  // In the calling thread: until all is given on, or nobody is left who would fetch more.
  void give_on(const TakeBytes& take) {
    std::unique_lock lock(mutex_);
    while (window_.empty() ? next_begin_ < request_.total : true) {
      for_caller_.wait_for(lock, kLook, [&] { return is_first_done() || is_stopped_ || n_alive_ == 0; });
      if (is_first_done()) {
        Piece piece = std::move(window_.front());
        window_.pop_front();
        for_workers_.notify_all();
        lock.unlock();
        take(piece.bytes);
        lock.lock();
        continue;
      }
      if (is_stopped_ || n_alive_ == 0) return;
      if (cancelled_ && cancelled_()) {
        end_.end = HttpEnd::cancelled;
        return;
      }
    }
    end_ = {};  // whatever a connection had to say
  }

  bool is_first_done() const { return !window_.empty() && window_.front().is_done; }

  Piece* next_piece() {
    std::unique_lock lock(mutex_);
    Piece* found = nullptr;
    for_workers_.wait(lock, [&] {
      if (is_stopped_) return true;
      const auto free = std::find_if(window_.begin(), window_.end(), [](const Piece& p) { return !p.is_taken; });
      if (free != window_.end()) {
        found = &*free;
      } else if (next_begin_ < request_.total && window_.size() < 2 * connections_.size()) {
        found = &window_.emplace_back();
        found->begin = next_begin_;
        found->size = std::min(piece_bytes_, request_.total - next_begin_);
        next_begin_ += found->size;
      }
      return found != nullptr;
    });
    if (found != nullptr) found->is_taken = true;
    return is_stopped_ ? nullptr : found;
  }

  // In a thread of its own: pieces, until there is an end.
  void work(Http& connection) noexcept try {
    while (Piece* const piece = next_piece()) {
      while (piece->missing() > 0) {
        const int64_t before = piece->missing();
        PiecesEnd failure = fetch(connection, *piece);
        if (piece->missing() == 0) break;
        const bool goes_on = piece->missing() < before && failure.end == HttpEnd::cut && !is_stopped_;
        if (goes_on) continue;
        const std::lock_guard lock(mutex_);
        piece->is_taken = false;
        --n_alive_;
        if (!is_stopped_) end_ = std::move(failure);
        if (end_.is_another || end_.end == HttpEnd::forbidden) is_stopped_ = true;
        for_caller_.notify_all();
        for_workers_.notify_all();
        return;
      }
      const std::lock_guard lock(mutex_);
      piece->is_done = true;
      for_caller_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!thrown_) thrown_ = std::current_exception();
    is_stopped_ = true;
    for_caller_.notify_all();
    for_workers_.notify_all();
  }

  PiecesEnd fetch(Http& connection, Piece& piece) const {
    PiecesEnd end;
    const int64_t begin = piece.begin + static_cast<int64_t>(piece.bytes.size());
    HttpRequest wanted{request_.url, begin, request_.version.starts_with('"') ? request_.version : "",
                       piece.begin + piece.size};
    piece.bytes.reserve(static_cast<size_t>(piece.size));
    const HttpResult result = connection.get(
        wanted,
        [&](const HttpHead& head) {
          end.head = head;
          const bool has_version = !head.version().empty() && !request_.version.empty();
          end.is_another =
              head.status == 200 || (head.status == 206 && (head.range_total != request_.total ||
                                                            (has_version && head.version() != request_.version)));
          const bool is_plain = head.encoding.empty() || head.encoding == "identity";
          return head.status == 206 && !end.is_another && head.range_begin == begin && is_plain;
        },
        [&](std::vector<std::byte>& bytes) {  // more than was asked for is nobody's
          const auto n = std::min<int64_t>(static_cast<int64_t>(bytes.size()), piece.missing());
          piece.bytes.insert(piece.bytes.end(), bytes.begin(), bytes.begin() + n);
        });
    end.end = result.end == HttpEnd::complete ? HttpEnd::cut : result.end;
    end.problem = result.problem.empty() ? "a part of it ended early" : result.problem;
    return end;
  }

  const PiecesRequest& request_;
  const std::function<bool()>& cancelled_;
  std::vector<std::unique_ptr<Http>> connections_;

  std::mutex mutex_;
  std::condition_variable for_caller_, for_workers_;
  std::deque<Piece> window_;  // from the next to give on to the last that was asked for
  int64_t next_begin_, piece_bytes_;
  int n_alive_ = 0;
  std::atomic<bool> is_stopped_ = false;
  std::exception_ptr thrown_;
  PiecesEnd end_;
};

}  // namespace

PiecesEnd fetch_pieces(const PiecesRequest& request, const HttpSettings& settings, const TakeBytes& take) {
  return Pieces(request, settings).run(take);
}

}  // namespace assay::store
