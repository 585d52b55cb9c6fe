// Updates on devices through the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(DeviceShareCommand, ResumesWithAnyShareToTheSameBits) {
  RunFolder folder;
  auto train = [&](const std::string& out, int iterations, double share) {
    CommandResult result =
        folder.train({"optimizer.decay=constant", "model.dtype=bf16", "output.dir=" + out,
                      "train.iterations=" + std::to_string(iterations),
                      "optimizer.device_share=" + std::to_string(share)});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return folder.json(out + "/summary.json");
  };
  Json host = train("host", 20, 0);
  EXPECT_EQ(host.find("device_share")->as_number(), 0);
  Json half = train("half", 20, 0.5);
  EXPECT_GT(half.find("device_share")->as_number(), 0.2);
  EXPECT_LT(half.find("device_share")->as_number(), 0.8);
  train("parts", 7, 0.5);
  train("parts", 14, 0);
  Json parts = train("parts", 20, 1);
  for (const char* key : {"weights_sha256", "loss_last"}) {
    EXPECT_EQ(half.find(key)->dump(), host.find(key)->dump()) << key;
    EXPECT_EQ(parts.find(key)->dump(), host.find(key)->dump()) << key;
  }
}

TEST(DeviceShareCommand, AutoSaysWhatItChose) {
  RunFolder folder;
  CommandResult result = folder.train({"optimizer.device_share=auto", "optimizer.kind=lion"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors,
              HasSubstr("auto: 0, since devices update adamw with fp32 moments only"));
  EXPECT_EQ(folder.json("out/summary.json").find("device_share")->as_number(), 0);
  result = folder.train({"optimizer.device_share=auto", "schedule.kind=1f1b", "output.dir=bound"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("auto: 0, for stages that stay where they are"));
  EXPECT_THAT(folder.train({"optimizer.device_share=auto"}, {"--print-config"}).output,
              HasSubstr("device_share = \"auto\""));
}

TEST(DeviceShareCommand, PrintsTheKeyAndRefusesWhatItIsNot) {
  RunFolder folder;
  EXPECT_THAT(folder.train({"optimizer.device_share=0.25"}, {"--print-config"}).output,
              HasSubstr("device_share = 0.25"));
  CommandResult range = folder.train({"optimizer.device_share=1.5"});
  EXPECT_EQ(range.exit_code, 1);
  EXPECT_THAT(range.errors, HasSubstr("optimizer.device_share = 1.5"));
  CommandResult lion = folder.train({"optimizer.device_share=0.5", "optimizer.kind=lion"});
  EXPECT_EQ(lion.exit_code, 1);
  EXPECT_THAT(lion.errors, AllOf(HasSubstr("optimizer.device_share = 0.5"), HasSubstr("lion")));
}

}  // namespace
}  // namespace stagecoach
