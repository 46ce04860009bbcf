// See builtins.h.
#include "chat/builtins/builtins.h"

#include <algorithm>

namespace assay::chat {

namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) noexcept {
  const auto it = std::find_if(table.begin(), table.end(), [name](const Builtin& b) { return b.name == name; });
  return it == table.end() ? nullptr : &*it;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t i = 0; i < text.size();) {
    const size_t blank = std::min(text.find(' ', i), text.size());
    if (blank > i) words.push_back(text.substr(i, blank - i));
    i = blank + 1;
  }
  return words;
}

}  // namespace

const Builtin* find_filter(std::string_view name) noexcept {
  for (const auto table : {text_filters_and_methods(), text_filters(), sequence_filters(), value_filters()})
    if (const Builtin* found = find_in(table, name)) return found;
  return nullptr;
}

const Builtin* find_test(std::string_view name) noexcept { return find_in(tests(), name); }

const Builtin* find_method(const Value& value, std::string_view name) noexcept {
  switch (value.kind()) {
    case Kind::string: {
      const Builtin* filter = find_in(text_filters_and_methods(), name);
      return filter != nullptr ? filter : find_in(string_methods(), name);
    }
    case Kind::dict: return find_in(dict_methods(), name);
    case Kind::list: return find_in(list_methods(), name);
    case Kind::tuple: return find_in(tuple_methods(), name);
    case Kind::range: return find_in(tuple_methods(), name);
    case Kind::loop: return find_in(loop_methods(), name);
    case Kind::cycler: return find_in(cycler_methods(), name);
    case Kind::boolean:
    case Kind::integer: return find_in(integer_methods(), name);
    case Kind::real: return find_in(real_methods(), name);
    default: return nullptr;
  }
}

void bind(const Builtin& builtin, Args& args) {
  if (builtin.parameters == "*") return;
  std::vector<std::string_view> names = words_of(builtin.parameters);
  const bool by_position = !names.empty() && names.front() == "/";
  if (by_position) names.erase(names.begin());
  const std::string title = "'" + std::string(builtin.name) + "'";
  if (args.positional.size() > names.size())
    fail(title + " takes at most " + std::to_string(names.size()) + " arguments, " +
         std::to_string(args.positional.size()) + " were given");
  args.positional.resize(names.size(), Value::absent());
  for (auto& [key, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), key);
    if (it == names.end() || by_position) fail(title + " takes no keyword argument '" + key + "'");
    Value& slot = args.positional[static_cast<size_t>(it - names.begin())];
    if (!slot.is_absent()) fail(title + " got the argument '" + key + "' twice");
    slot = std::move(value);
  }
  args.named.clear();
  for (int i = 0; i < builtin.n_required; ++i)
    if (args.positional[static_cast<size_t>(i)].is_absent())
      fail(title + " needs the argument '" + std::string(names[static_cast<size_t>(i)]) + "'");
}

}  // namespace assay::chat
