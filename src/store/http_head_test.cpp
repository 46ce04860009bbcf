// Heads of replies, right ones and others.
#include <gtest/gtest.h>

#include <string>

#include "store/http.h"

namespace assay::store {
namespace {

HttpHead head_of(std::initializer_list<std::string> lines) {
  HttpHead head;
  for (const std::string& line : lines) head.add_line(line);
  return head;
}

TEST(HttpHeads, WhatMattersIsTaken) {
  const HttpHead head =
      head_of({"Content-Length: 4096\r\n", "CONTENT-RANGE: bytes 100-4195/4196\r\n", "ETag:\"abc\"\r\n",
               "Last-Modified: yesterday\r\n", "Content-Type: text/html; charset=utf-8\r\n", "Location: /x\r\n",
               "Content-Encoding: GZIP\r\n"});
  EXPECT_EQ(head.length, 4096);
  EXPECT_EQ(head.range_begin, 100);
  EXPECT_EQ(head.range_total, 4196);
  EXPECT_EQ(head.version(), "\"abc\"");
  EXPECT_EQ(head.type, "text/html; charset=utf-8");
  EXPECT_EQ(head.location, "/x");
  EXPECT_EQ(head.encoding, "gzip");
  EXPECT_EQ(head_of({"Last-Modified: d"}).version(), "d");
  EXPECT_EQ(head_of({"Content-Range: bytes 5-9/*"}).range_total, -1);
}

TEST(HttpHeads, WhatCannotBeReadIsLeftOut) {
  for (const char* value : {"", "-1", "+5", "0x10", "99999999999999999999", "1 2", "12a"}) {
    EXPECT_EQ(head_of({std::string("Content-Length: ") + value}).length, -1) << value;
  }
  for (const char* value : {"", "bytes", "bytes -5/", "bytes */200", "bytes 1/2-3", "lines 1-2/3", "bytes a-b/c"}) {
    EXPECT_EQ(head_of({std::string("Content-Range: ") + value}).range_begin, -1) << value;
  }
  EXPECT_EQ(head_of({"no colon", ":", ": x", std::string("ETag: ") + std::string(100000, 'x')}).tag, "");
}

TEST(HttpHeads, RetryAfterInSecondsOrAsADate) {
  EXPECT_EQ(retry_after_seconds("120", 0), 120);
  EXPECT_EQ(retry_after_seconds("Thu, 01 Jan 1970 00:02:00 GMT", 60), 60);
  EXPECT_EQ(retry_after_seconds("Thu, 01 Jan 1970 00:02:00 GMT", 600), 0);
  for (const char* value : {"", "-5", "soon", "1.5", "Thu, 01 Jan 1970 00:02:00 GMT x"})
    EXPECT_EQ(retry_after_seconds(value, 0), -1) << value;
}

TEST(HttpHeads, TheNextPage) {
  EXPECT_EQ(next_link("<https://h/a?cursor=1>; rel=\"next\""), "https://h/a?cursor=1");
  EXPECT_EQ(next_link("<https://h/0>; rel=\"prev\", <https://h/2>; rel=\"next\""), "https://h/2");
  for (const char* value : {"", "<", "<x", "<https://h/a>", "<https://h/a>; rel=\"prev\"", "rel=\"next\""})
    EXPECT_EQ(next_link(value), "") << value;
}

}  // namespace
}  // namespace assay::store
