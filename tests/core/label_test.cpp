#include "core/label.h"

#include <gtest/gtest.h>
#include <string>

namespace stagecoach {
namespace {

TEST(Label, KeepsShortNamesAndTheEndOfLongOnes) {
  EXPECT_EQ(Label().view(), "");
  EXPECT_EQ(Label("forward").view(), "forward");
  std::string longest(Label::kCapacity, 'x');
  EXPECT_EQ(Label(longest).view(), longest);
  EXPECT_EQ(Label("cut" + longest).view(), longest);
}

}  // namespace
}  // namespace stagecoach
