// Work that may take a while, away from the thread of the sockets.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>

namespace assay::serve {

template <class T>
boost::asio::awaitable<T> call(std::function<T()> work) {
  co_return work();
}

// What it returns or throws comes back to the caller's own thread.
template <class T>
boost::asio::awaitable<T> on_workers(boost::asio::thread_pool& pool, std::function<T()> work) {
  T result = co_await boost::asio::co_spawn(pool.get_executor(), call<T>(std::move(work)), boost::asio::use_awaitable);
  co_return result;
}

}  // namespace assay::serve
