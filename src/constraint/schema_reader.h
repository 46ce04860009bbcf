// What is asked by the keywords of one schema, and what is wrong in them: everything that is said without a network.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/constraint.h"
#include "json/shown.h"

namespace assay::constraint {

using json_text::shown;

struct SchemaItems {
  std::vector<const boost::json::value*> prefix;
  const boost::json::value* rest = nullptr;  // null: any value
  bool has_rest = true;
  int64_t least = 0;
  std::optional<int64_t> most;
};

struct SchemaMember {
  std::string name;
  const boost::json::value* schema = nullptr;  // null: any value
  std::string pointer;
  bool required = false;
};

// Each function takes a schema and its place in the document, and adds what is wrong to the problems.
class SchemaReader {
 public:
  // Both must outlive it.
  SchemaReader(const boost::json::value& document, std::vector<SchemaProblem>& problems)
      : document_(document), problems_(problems) {}

  const boost::json::value& document() const { return document_; }
  void problem(const std::string& pointer, std::string message) const;
  // The document as the schema of a call's arguments; null: it is none that names one after the other.
  const boost::json::object* arguments() const;
  void check_keywords(const boost::json::object& object, const std::string& pointer) const;
  // Names beside `except` and `also` that ask for something.
  void refuse_beside(const boost::json::object& object, std::string_view except, std::string_view also,
                     const std::string& pointer) const;
  void require_apart(const boost::json::array& schemas, const std::string& pointer) const;
  // What `type` says; without it, the types that the other keywords speak of, or all where there are none.
  unsigned types_asked(const boost::json::object& object, const std::string& pointer) const;
  // A count of at most 2^31; nothing where it is left out.
  std::optional<int64_t> count(const boost::json::object& object, const std::string& pointer, const char* name) const;
  // None: they are wrong.
  std::optional<SchemaItems> items(const boost::json::object& object, const std::string& pointer) const;
  // more: what additionalProperties says; null: it is left out.
  std::vector<SchemaMember> members(const boost::json::object& object, const std::string& pointer,
                                    const boost::json::value* more) const;

 private:
  const boost::json::value& document_;
  std::vector<SchemaProblem>& problems_;
};

}  // namespace assay::constraint
