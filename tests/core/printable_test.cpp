#include "core/printable.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Printable, TextOfAnyLanguageStays) {
  for (const char* text : {"", "model.layers.0", "naïve", "模型", "🚂 ok", "a\\b", "\u00a0"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, WhatTerminalsObeyIsSpelledOut) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("line\nnext\r\t"), "line\\x0anext\\x0d\\x09");
  EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m");
}

TEST(Printable, BytesThatAreNoTextAreSpelledOut) {
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");
  EXPECT_EQ(printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");
  EXPECT_EQ(printable("end\xe6\xa8"), "end\\xe6\\xa8");
  EXPECT_EQ(printable("\xff"
                      "a"),
            "\\xffa");
}

}  // namespace
}  // namespace stagecoach
