#include "memory/budget.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace stagecoach {

namespace {

ByteCount bytes_of(double per_element, int64_t elements) {
  return static_cast<ByteCount>(std::ceil(per_element * static_cast<double>(elements)));
}

}  // namespace

ElementBytes element_bytes(const StateFormat& format, bool is_trainable) {
  double read = static_cast<double>(dtype_size_bytes(format.compute_dtype));
  if (!is_trainable) return {0, read, 0, 0};
  ElementBytes bytes;
  bytes.master = 4;
  bytes.moments = format.moment_bytes;
  // The split master's high half and the fp32 master are what devices read.
  if (format.compute_dtype == DType::kF16) bytes.copies = read;
  if (format.is_asynchronous) bytes.copies += read;
  bytes.gradients = format.has_several_rounds ? 4 : read;
  // The sum of the next step grows while the update still reads the last one.
  bool is_wide = format.compute_dtype == DType::kF32;
  if (format.has_several_rounds && format.is_asynchronous && !is_wide) bytes.gradients += read;
  return bytes;
}

ByteCount Budget::host_bytes() const {
  return masters + copies + moments + gradients + landing_ring + activations + staging;
}

double Budget::state_bytes_per_element() const {
  if (trainable_elements == 0) return 0;
  return static_cast<double>(masters + copies + moments + gradients) /
         static_cast<double>(trainable_elements);
}

Budget make_budget(const BudgetRequest& request) {
  Budget budget;
  ByteCount read = dtype_size_bytes(request.format.compute_dtype);
  bool master_is_read = request.format.compute_dtype != DType::kF16;
  ByteCount largest = 0;
  for (const BudgetBlock& block : request.blocks) {
    ElementBytes each = element_bytes(request.format, block.is_trainable);
    budget.masters += bytes_of(each.master, block.element_count);
    budget.copies += bytes_of(each.copies, block.element_count);
    budget.moments += bytes_of(each.moments, block.element_count);
    budget.gradients += bytes_of(each.gradients, block.element_count);
    if (!block.is_trainable) continue;
    budget.trainable_elements += block.element_count;
    largest = std::max(largest, block.element_count * read);
  }
  budget.landing_ring = 2 * largest;
  budget.activations = request.activation_bytes;
  budget.staging = request.staging_bytes;
  budget.devices = request.devices;
  ByteCount read_masters = master_is_read ? budget.trainable_elements * read : 0;
  budget.pinned = read_masters + budget.copies + budget.gradients + budget.landing_ring +
                  budget.activations + budget.staging;
  return budget;
}

std::vector<std::string> budget_problems(const Budget& budget, const HostLimits& limits,
                                         bool asks_lock_limit) {
  std::vector<std::string> problems;
  if (budget.host_bytes() > limits.free_bytes) {
    problems.push_back(fmt::format(
        "host memory: {} are needed, {} of them training state at {:.1f} bytes a parameter; {} are "
        "free by {}. Take a smaller model, update = \"overlap\" or rounds = 1, or free or add {}",
        format_bytes(budget.host_bytes()),
        format_bytes(budget.masters + budget.copies + budget.moments + budget.gradients),
        budget.state_bytes_per_element(), format_bytes(limits.free_bytes), limits.free_source,
        format_bytes(budget.host_bytes() - limits.free_bytes)));
  }
  if (asks_lock_limit && limits.lockable_bytes && budget.pinned > *limits.lockable_bytes) {
    problems.push_back(
        fmt::format("pinned memory: {} are needed; ulimit -l allows {}. Raise it by 'ulimit -l "
                    "unlimited'",
                    format_bytes(budget.pinned), format_bytes(*limits.lockable_bytes)));
  }
  for (const DeviceBudget& device : budget.devices) {
    if (device.need_bytes <= device.free_bytes) continue;
    problems.push_back(fmt::format(
        "memory of {}: {} are needed, {} are free. Take shorter sequences or more micro-batches, "
        "or a device with {} more",
        device.device, format_bytes(device.need_bytes), format_bytes(device.free_bytes),
        format_bytes(device.need_bytes - device.free_bytes)));
  }
  return problems;
}

}  // namespace stagecoach
