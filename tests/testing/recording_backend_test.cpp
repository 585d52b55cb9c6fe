#include "testing/recording_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include "backends/cpu/cpu_backend.h"
#include "tests/testing/decorated_rig.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A little program on two devices.
void run_program(DecoratedRig& rig, const std::string& second_label = "product") {
  auto first = rig.make_stream(0), second = rig.make_stream(1), third = rig.make_stream(1);
  ASSERT_TRUE(rig.submit("add", *first, "sum").is_ok());
  ASSERT_TRUE(second->wait(first->last_submitted()).is_ok());
  ASSERT_TRUE(rig.submit("matmul", *second, second_label).is_ok());
  ASSERT_TRUE(rig.submit("fill", *second, "zero").is_ok());
  ASSERT_TRUE(third->wait(second->last_submitted()).is_ok());  // they write the same memory
  ASSERT_TRUE(rig.submit("copy", *third, "move").is_ok());
  for (Stream* stream : {first.get(), second.get(), third.get()}) {
    ASSERT_TRUE(stream->wait_until_reached(stream->last_submitted().sequence).is_ok());
  }
}

std::shared_ptr<OperationLog> record(const std::string& second_label = "product") {
  auto log = std::make_shared<OperationLog>();
  DecoratedRig rig(std::make_shared<Recorder>(log));
  run_program(rig, second_label);
  return log;
}

TEST(Recording, WritesTheWorkOfEachStreamInOrder) {
  EXPECT_EQ(record()->format(),
            "cpu:0/compute\n"
            "add 'sum' 768\n"
            "cpu:1/compute\n"
            "matmul 'product' 768\n"
            "fill 'zero' 256\n"
            "cpu:1/compute#2\n"
            "copy 'move' 256\n");
}

TEST(Recording, LogsEveryVerbWithItsSequence) {
  auto log = std::make_shared<OperationLog>();
  DecoratedRig rig(std::make_shared<Recorder>(log));
  for (const std::string& verb : device_verbs()) {
    ASSERT_TRUE(rig.call(verb, 0, "thing").is_ok()) << verb;
    std::string all = log->format(LogDetail::kAll);
    EXPECT_THAT(all, HasSubstr("\n" + verb + " '")) << verb;
  }
  for (const std::string& verb : stream_verbs()) {
    ASSERT_TRUE(rig.call(verb, 1, "thing").is_ok()) << verb;
    EXPECT_THAT(log->format(LogDetail::kAll), HasSubstr("\n" + verb + " '")) << verb;
  }
  uint64_t expected = 0;
  for (const LogEntry& entry : log->entries()) EXPECT_EQ(entry.sequence, ++expected);
}

TEST(Recording, IsTheSameInEveryRunAndNamesTheFirstDifference) {
  std::shared_ptr<OperationLog> one = record(), two = record(), other = record("quotient");
  EXPECT_EQ(first_difference(*one, *two), "");
  EXPECT_EQ(first_difference(*one, *other),
            "cpu:1/compute, operation 1: matmul 'product' 768 against matmul 'quotient' 768");
  EXPECT_EQ(first_difference(*one, OperationLog()),
            "cpu:0/compute, operation 1: add 'sum' 768 against nothing");
  EXPECT_THAT(one->lanes(),
              ElementsAre("cpu:0", "cpu:0/compute", "cpu:1", "cpu:1/compute", "cpu:1/compute#2"));
}

TEST(Recording, WrapsAFaultyBackendAndShowsWhatFailed) {
  auto log = std::make_shared<OperationLog>();
  BackendRegistry registry;
  registry.add(make_recording_backend(
      make_faulty_backend(make_cpu_backend(), make_injector("0.fill#2=fail")), log));
  auto devices = registry.open_devices("cpu:1");
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  Device& device = *devices->front();
  Allocation memory = device.allocate(8, "pair");
  ASSERT_EQ(memory.outcome, AllocationOutcome::kOk);
  auto stream = device.create_stream({"compute"});
  ASSERT_TRUE(stream.is_ok());
  ASSERT_TRUE((*stream)->fill({memory.buffer->view(), 0, 4, "first"}).is_ok());
  ASSERT_FALSE((*stream)->fill({memory.buffer->view(), 1, 4, "second"}).is_ok());
  EXPECT_EQ(log->format_lane("cpu:0/compute"),
            "fill 'first' 8\nfill 'second' 8 -> internal error\n");
}

}  // namespace
}  // namespace stagecoach
