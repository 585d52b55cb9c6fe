#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hal/hal.h"

namespace stagecoach {

inline constexpr int64_t kMsNs = 1'000'000;

/// CPU devices opened from a device string, with the small helpers that tests of the mock share.
class CpuRig : public testing::Test {
 protected:
  /// Replaces the devices by those of `spec`.
  void open(std::string_view spec);
  void TearDown() override;

  Device& device(size_t index = 0) { return *devices_[index]; }
  std::unique_ptr<Stream> new_stream(const char* name = "stream", size_t index = 0);
  BufferHandle device_buffer(ByteCount size, size_t index = 0);
  BufferHandle pinned_buffer(ByteCount size, size_t index = 0);

  /// A busy_wait of `work_ns` that says it has `flop` FLOP.
  void launch(Stream& stream, int64_t work_ns, double flop);
  /// Records a timing event, kept for `time_ns`; returns its number.
  size_t record_time(Stream& stream, size_t index = 0);
  bool has_passed(size_t event) { return events_[event]->query().value(); }
  /// Nominal time of a recorded event, which must have been passed.
  int64_t time_ns(size_t event);

  std::vector<std::unique_ptr<Device>> devices_;

 private:
  std::vector<std::unique_ptr<Executable>> executables_;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace stagecoach
