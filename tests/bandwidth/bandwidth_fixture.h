#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "backends/register_backends.h"
#include "core/task_pool.h"
#include "tools/bandwidth/bandwidth_plan.h"

namespace stagecoach {

/// Opens `spec` with the built-in backends; fails the test where that fails.
inline std::vector<std::unique_ptr<Device>> open_devices(const std::string& spec) {
  auto devices = built_in_backends().open_devices(spec);
  EXPECT_TRUE(devices.is_ok()) << devices.status().to_string();
  return std::move(devices).value();
}

/// Options that make tests short: figures of paced devices are nominal and need no time to settle.
inline BandwidthOptions short_options(const std::string& suite) {
  BandwidthOptions options;
  options.suite = suite;
  options.sampling.repetitions = 5;
  options.sampling.min_time_ns = 0;
  options.sampling.batch_time_ns = 4'000'000;
  options.sampling.warm_up_limit_ns = 50'000'000;
  options.sampling.most_reruns = 1;
  return options;
}

/// Runs a suite on devices of any kind.
inline BandwidthReport run_suite(const std::vector<std::unique_ptr<Device>>& devices,
                                 const BandwidthOptions& options) {
  std::vector<MeasuredDevice> measured;
  for (const std::unique_ptr<Device>& device : devices) measured.push_back({device.get(), 0});
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);
  BandwidthReport report;
  auto plan = plan_bandwidth(measured, options, kGiB, *pool);
  EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
  if (plan.is_ok()) run_bandwidth_plan(std::move(plan).value(), report, nullptr, nullptr);
  return report;
}

}  // namespace stagecoach
