#include "train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

Json line_of(int64_t iteration) {
  IterationMetrics metrics;
  metrics.iteration = iteration;
  metrics.loss = 2.5;
  metrics.tokens = 64 * iteration;
  metrics.tokens_per_s = 1000;
  metrics.grad_norm = 0.5;
  metrics.lr = 1e-3;
  metrics.bubble = 0.25;
  return iteration_metrics_to_json(metrics);
}

TEST(Metrics, LinesHaveTheKeysOfTheContractInOrder) {
  EXPECT_EQ(line_of(3).dump(),
            R"({"iteration":3,"loss":2.5,"tokens":192,"tokens_per_s":1000.0,"grad_norm":0.5,)"
            R"("lr":0.001,"bubble":0.25})");
  EXPECT_EQ(validation_metrics_to_json(4, 2.0).dump(), R"({"iteration":4,"validation_loss":2.0})");
}

TEST(Metrics, ReopeningDropsWhatCameAfterTheCheckpoint) {
  TemporaryFolder folder;
  std::string path = folder.file("metrics.jsonl");
  {
    Result<MetricsWriter> writer = MetricsWriter::open(path, 0);
    ASSERT_TRUE(writer.is_ok()) << writer.status().to_string();
    for (int64_t iteration = 1; iteration <= 5; ++iteration) {
      ASSERT_TRUE(writer->write(line_of(iteration)).is_ok());
    }
    ASSERT_TRUE(writer->write(validation_metrics_to_json(5, 2.0)).is_ok());
  }
  ASSERT_TRUE(write_file_atomically(path, *read_file(path) + "{\"iteration\": 1, cut").is_ok());
  Result<MetricsWriter> again = MetricsWriter::open(path, 3);
  ASSERT_TRUE(again.is_ok());
  ASSERT_TRUE(again->write(line_of(4)).is_ok());
  std::string expected;
  for (int64_t iteration = 1; iteration <= 4; ++iteration)
    expected += line_of(iteration).dump() + "\n";
  EXPECT_EQ(*read_file(path), expected);
  // 0 starts anew.
  ASSERT_TRUE(MetricsWriter::open(path, 0).is_ok());
  EXPECT_EQ(*read_file(path), "");
}

TEST(Metrics, AFileThatIsTakenAwayIsNoticedAtTheNextLine) {
  TemporaryFolder folder;
  std::string path = folder.file("metrics.jsonl");
  for (bool is_replaced : {false, true}) {
    MetricsWriter writer = MetricsWriter::open(path, 0).value();
    ASSERT_TRUE(writer.write(line_of(1)).is_ok());
    ASSERT_EQ(std::rename(path.c_str(), folder.file("moved").c_str()), 0);
    if (is_replaced) {
      ASSERT_TRUE(write_file_atomically(path, "").is_ok());
    }
    Status status = writer.write(line_of(2));
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_THAT(status.message(),
                testing::AllOf(testing::HasSubstr("'" + path + "' was "),
                               testing::HasSubstr(is_replaced ? "replaced" : "moved or removed"),
                               testing::HasSubstr("run the same command again")));
  }
}

TEST(Metrics, FailuresNameTheFile) {
  Result<MetricsWriter> nowhere = MetricsWriter::open("/nonexistent/metrics.jsonl", 0);
  ASSERT_FALSE(nowhere.is_ok());
  EXPECT_EQ(nowhere.status().code(), StatusCode::kIo);
  EXPECT_THAT(nowhere.status().message(), testing::HasSubstr("/nonexistent/metrics.jsonl"));
}

TEST(Metrics, MedianOfAnyCount) {
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(median({3}), 3.0);
  EXPECT_EQ(median({5, 1, 3}), 3.0);
  EXPECT_EQ(median({4, 1, 3, 2}), 3.0);
}

}  // namespace
}  // namespace stagecoach
