// Stop strings: the result depends on the text alone, never on how it was cut.
#include "engine/sampling/stop_strings.h"

#include <gtest/gtest.h>

#include "assay/error.h"

namespace assay::engine {
namespace {

// The text shown when it comes in pieces of n bytes, then what stopped it in brackets.
std::string run(const std::vector<std::string>& stops, const std::string& text, size_t n) {
  StopStrings stop(stops);
  std::string shown;
  for (size_t i = 0; i < text.size() && !stop.matched(); i += n) shown += stop.push(text.substr(i, n));
  shown += stop.finish();
  return shown + "[" + (stop.matched() ? *stop.matched() : "") + "]";
}

TEST(StopStrings, EndTheTextBeforeTheFirstComplete) {
  for (size_t n = 1; n <= 12; ++n) {
    SCOPED_TRACE(n);
    EXPECT_EQ(run({"\n\n"}, "a\nb\n\nc", n), "a\nb[\n\n]");
    EXPECT_EQ(run({"User:"}, "Use User User:", n), "Use User [User:]");
    EXPECT_EQ(run({"aab"}, "aaaaab.", n), "aaa[aab]");
    EXPECT_EQ(run({"xyz"}, "ends with xy", n), "ends with xy[]");
    EXPECT_EQ(run({"abcd", "bc"}, "zabcd", n), "za[bc]");   // bc is complete first
    EXPECT_EQ(run({"cd", "abcd"}, "zabcd", n), "z[abcd]");  // both end together: the longer one
    EXPECT_EQ(run({"\xC3\xA9"}, "caf\xC3\xA9.", n), "caf[\xC3\xA9]");
    EXPECT_EQ(run({}, "all of it", n), "all of it[]");
    EXPECT_EQ(run({"a"}, "a", n), "[a]");
  }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeOne) {
  StopStrings stop({"</s>", "###"});
  EXPECT_EQ(stop.push("one <"), "one ");
  EXPECT_EQ(stop.push("b>"), "<b>");
  EXPECT_EQ(stop.push("##"), "");
  EXPECT_EQ(stop.push("!"), "##!");
  EXPECT_EQ(stop.push("</s"), "");
  EXPECT_EQ(stop.finish(), "</s");
}

TEST(StopStrings, RefusesEmptyHugeAndTooMany) {
  EXPECT_THROW(StopStrings({""}), Error);
  EXPECT_THROW(StopStrings({std::string(5000, 'x')}), Error);
  EXPECT_THROW(StopStrings(std::vector<std::string>(65, "x")), Error);
}

}  // namespace
}  // namespace assay::engine
