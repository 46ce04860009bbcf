// What stands behind the opaque handles of assay/assay.h, and how errors and sized structs cross the border.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "assay/assay.h"
#include "assay/context.h"
#include "assay/error.h"
#include "assay/generate.h"
#include "assay/model.h"
#include "assay/session.h"
#include "assay/tokenizer.h"
#include "assay/verify.h"

struct assay_error {
  assay_status code;
  std::string message;
};

struct assay_model {
  explicit assay_model(std::shared_ptr<const assay::Model> loaded);
  std::shared_ptr<const assay::Model> model;
  std::string name, architecture, weights_type, chat_template;  // with a NUL at their end
};

struct assay_tokenizer {
  std::shared_ptr<const assay::Tokenizer> tokenizer;
};

struct assay_context {
  assay::Context context;
  assay::RunRequest request;                       // with the hooks that the user set
  std::map<int32_t, assay::Generator> generators;  // by sequence; forgotten when the sequence is run by hand
};

struct assay_generation {
  assay::Generation result;
};

struct assay_chat {
  assay::ChatSession session;
};

struct assay_report {
  assay::VerifyReport report;
};

namespace assay::c {

// Turns the exception that is being handled into a status, and an error object where one is wanted.
assay_status failed(assay_error** error) noexcept;

// Runs the work; an exception becomes a status.
template <typename Work>
assay_status guarded(assay_error** error, Work&& work) noexcept {
  try {
    work();
    return ASSAY_OK;
  } catch (...) {
    return failed(error);
  }
}

[[noreturn]] void refuse(const std::string& what);  // Error(bad_request)

// Error(bad_request) with the argument's name where it is NULL.
template <typename T>
T& required(T* argument, const char* name) {
  if (argument == nullptr) refuse(std::string(name) + " is NULL");
  return *argument;
}

template <typename T>
std::span<const T> array(const T* items, size_t n, const char* name) {
  if (items == nullptr && n > 0) refuse(std::string(name) + " is NULL and has " + std::to_string(n) + " items");
  return {items, n};
}

// A struct of options as this library knows it: `defaults` with the fields that the caller's headers had put over them.
// Error(bad_request) where it was never initialised or sets a field that this library does not know.
template <typename T>
T read_sized(const T* given, const T& defaults, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, size) == 0);
  if (given == nullptr) return defaults;
  if (given->size <= sizeof given->size)
    refuse(std::string(name) + ": its size is not set; fill it with " + name + "_init");
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (given->size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + given->size, [](unsigned char byte) { return byte != 0; }))
    refuse(std::string(name) + ": sets a field that came after version " + ASSAY_VERSION + " of the library");
  T result = defaults;
  std::memcpy(&result, given, std::min(given->size, sizeof(T)));
  result.size = sizeof(T);
  return result;
}

// As many bytes of `value` as the caller's struct has; what is beyond becomes 0.
template <typename T>
void write_sized(T* to, size_t size, T value) {
  if (to == nullptr || size == 0) return;
  value.size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &value, std::min(size, sizeof(T)));
}

// Copies that assay_free() frees. A text gets a NUL at its end.
char* copied(std::string_view text);
int32_t* copied(std::span<const int32_t> ids);

inline std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : std::string(text); }

ContextOptions context_options(const assay_context_options* given);
GenerateOptions generate_options(const Model& model, const assay_generate_options& given);
assay_generate_options generate_settings(const assay_generate_options* given);  // with defaults for what it lacks

// The hooks of a call that answers: the text callback may end it as the cancel callback does.
class AnswerHooks {
 public:
  AnswerHooks(const assay_generate_options& options, std::function<bool()> also_cancelled = {});
  AnswerHooks(const AnswerHooks&) = delete;
  AnswerHooks& operator=(const AnswerHooks&) = delete;
  const Generator::TextSink& sink() const noexcept { return sink_; }
  const std::function<bool()>& cancelled() const noexcept { return cancelled_; }

 private:
  bool stopped_ = false;
  Generator::TextSink sink_;
  std::function<bool()> cancelled_;
};

}  // namespace assay::c
