#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/trace.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr int kDevices = 2;
constexpr int64_t kNsPerUs = 1000;

/// A run's folder whose trace has two iterations of two devices, and a prediction of the second
/// where asked for: measured slots take 100 us, predicted ones 90 and 110.
class ReportPrediction : public testing::Test {
 protected:
  void write(bool has_prediction) {
    std::filesystem::create_directory(folder_.file("run"));
    std::ofstream(folder_.file("run/metrics.jsonl"))
        << "{\"iteration\":1,\"loss\":2}\n{\"iteration\":2,\"loss\":1}\n";
    Trace trace(100);
    for (int device = 0; device < kDevices; ++device) {
      std::string name = "cpu:" + std::to_string(device);
      trace.name_process(device, name);
      trace.name_track(device, 0, "compute");
      trace.name_track(device, 1, "activation_up");
      for (int iteration = 0; iteration < 2; ++iteration) {
        add(trace, device, 0, "F", iteration, 200 * iteration, 100);
        add(trace, device, 0, "B", iteration, 200 * iteration + 100, 100);
      }
      if (!has_prediction) continue;
      trace.name_process(10 + device, "predicted " + name);
      trace.name_track(10 + device, 0, "compute");
      int64_t slot = device == 0 ? 90 : 110;
      add(trace, 10 + device, 0, "F", 1, 200, slot);
      add(trace, 10 + device, 0, "B", 1, 200 + slot, slot);
    }
    ASSERT_TRUE(trace.write_perfetto(folder_.file("run/trace.json")).is_ok());
  }
  static void add(Trace& trace, int process, int track, const char* kind, int iteration,
                  int64_t start_us, int64_t length_us) {
    TraceSlice slice;
    slice.name = kind;
    slice.category = "compute";
    slice.process = process;
    slice.track = track;
    slice.start_ns = start_us * kNsPerUs;
    slice.end_ns = (start_us + length_us) * kNsPerUs;
    slice.micro_batch = 0;
    slice.stage = 0;
    slice.iteration = iteration;
    trace.add(slice);
  }
  /// The trace that the page of `stagecoach report run` carries.
  Json reported() {
    CommandResult result = run_command({"report", "run"}, folder_.path());
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    page_ = read_file(folder_.file("run/report.html")).value();
    size_t begin = page_.find('>', page_.find("type=\"application/json\">")) + 1;
    Result<Json> data = Json::parse(page_.substr(begin, page_.find("</script>", begin) - begin));
    EXPECT_TRUE(data.is_ok()) << data.status().to_string();
    return data.is_ok() ? *data->find("trace") : Json::object();
  }

  TemporaryFolder folder_;
  std::string page_;
};

TEST_F(ReportPrediction, StandsBesideWhatWasMeasured) {
  write(true);
  Json trace = reported();
  const Json* prediction = trace.find("prediction");
  ASSERT_NE(prediction, nullptr);
  EXPECT_EQ(prediction->find("iteration")->as_integer(), 2);
  EXPECT_NEAR(prediction->find("measured_us")->as_number(), 200, 1e-6);
  EXPECT_NEAR(prediction->find("predicted_us")->as_number(), 220, 1e-6);
  EXPECT_NEAR(prediction->find("difference")->as_number(), 0.1, 1e-9);
  const Json::Array& devices = prediction->find("devices")->items();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].find("device")->as_string(), "cpu:0");
  EXPECT_NEAR(devices[0].find("difference")->as_number(), -0.1, 1e-9);
  EXPECT_NEAR(devices[1].find("difference")->as_number(), 0.1, 1e-9);
  // The predicted slots are shown, and do not make their iteration an unusual one.
  EXPECT_EQ(trace.find("last_iteration")->as_integer(), 2);
  EXPECT_EQ(trace.find("shown")->as_integer(), 12);
  EXPECT_NEAR(trace.find("span_us")->as_number(), 420, 1e-6);
  EXPECT_THAT(page_, HasSubstr("predicted cpu:1"));
}

TEST_F(ReportPrediction, IsLeftOutWhereThereIsNone) {
  write(false);
  Json trace = reported();
  EXPECT_TRUE(trace.find("prediction")->is_null());
  EXPECT_EQ(trace.find("shown")->as_integer(), 8);
  EXPECT_NEAR(trace.find("span_us")->as_number(), 400, 1e-6);
}

TEST_F(ReportPrediction, ACutTraceIsNoShorterRun) {
  write(true);
  std::string path = folder_.file("run/trace.json"), whole = read_file(path).value();
  std::ofstream(path) << whole.substr(0, whole.size() / 2);
  CommandResult result = run_command({"report", "run"}, folder_.path());
  EXPECT_EQ(result.exit_code, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("it was cut"));
}

}  // namespace
}  // namespace stagecoach
