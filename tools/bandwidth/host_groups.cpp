#include "tools/bandwidth/host_groups.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "tools/bandwidth/host_measurement.h"
#include "tools/bandwidth/update_measurement.h"

namespace stagecoach {

void add_updates(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("optim");
  int64_t count = builder.host_bytes(1) / kBytesOfAnUpdate;
  auto arrays = std::make_shared<UpdateArrays>(count);
  for (int threads : builder.thread_counts()) {
    MeasurementInfo info;
    info.id = fmt::format("optim/adamw/threads{}", threads);
    info.group = "optim";
    info.params["rule"] = "adamw";
    info.params["threads"] = threads;
    info.params["parameters"] = count;
    group.measurements.push_back(
        std::make_unique<UpdateMeasurement>(std::move(info), threads, arrays));
  }
  builder.push(std::move(group));
}

void add_host(GroupBuilder& builder) {
  BandwidthGroup group = builder.start("host");
  ByteCount size = builder.host_bytes(2);
  auto arrays = std::make_shared<HostArrays>(size);
  std::vector<int> threads = builder.thread_counts();
  std::vector<HostKernel> kernels = {HostKernel::kRead, HostKernel::kWrite, HostKernel::kCopy,
                                     HostKernel::kConvert};
  if (builder.is_full()) {
    kernels.insert(kernels.end(), {HostKernel::kAccumulate, HostKernel::kTriad});
  }
  for (HostKernel kernel : kernels) {
    for (int count : threads) {
      MeasurementInfo info;
      info.id = fmt::format("host/{}/threads{}", host_kernel_name(kernel), count);
      info.group = "host";
      info.params["kernel"] = host_kernel_name(kernel);
      info.params["threads"] = count;
      info.params["size"] = size;
      info.params["dram_factor"] = host_pass_bytes(kernel, size).dram_factor();
      group.measurements.push_back(
          std::make_unique<HostMeasurement>(std::move(info), kernel, count, arrays));
    }
  }
  builder.push(std::move(group));
}

}  // namespace stagecoach
