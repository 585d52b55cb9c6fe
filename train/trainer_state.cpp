// What a trainer holds, and what it reports.
#include <algorithm>
#include <utility>

#include "core/digest.h"
#include "core/float_pieces.h"
#include "train/initial_values.h"
#include "train/metrics.h"
#include "train/trainer_impl.h"

namespace stagecoach {

namespace {

bool ends_with_any(const std::string& name, const std::vector<std::string>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](const std::string& suffix) { return name.ends_with(suffix); });
}

}  // namespace

const HostState& Trainer::host_state() const {
  return *impl_->state;
}

const Network& Trainer::network() const {
  return impl_->network;
}

void Trainer::read_parameters(int block, int64_t offset, std::span<float> out) const {
  STAGECOACH_CHECK(impl_->executor->is_idle());
  impl_->state->read_parameters(block, offset, out);
}

Status Trainer::write_parameters(int block, int64_t offset, std::span<const float> values) {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !is_reading());
  return impl_->state->write_parameters(block, offset, values);
}

const MomentOptions& Trainer::moments() const {
  return impl_->moments;
}

void Trainer::read_moment(Moment moment, int block, int64_t offset, std::span<float> out) const {
  STAGECOACH_CHECK(impl_->executor->is_idle());
  impl_->state->read_moment(moment, block, offset, out);
}

MomentView Trainer::moment(Moment moment, int block, int64_t offset, int64_t count) {
  STAGECOACH_CHECK(impl_->executor->is_idle());
  return impl_->state->moment(moment, block, offset, count);
}

bool Trainer::keeps_previous() const {
  return impl_->update_mode() == UpdateMode::kAsync;
}

std::span<const std::byte> Trainer::previous_copy(int block, int64_t offset, int64_t count) const {
  STAGECOACH_CHECK(impl_->executor->is_idle() && keeps_previous());
  const HostState& state = *impl_->state;
  ByteCount size = dtype_size_bytes(impl_->network.dtype);
  BufferView copy = state.compute_copy(block, state.version(block) - 1);
  return {reinterpret_cast<const std::byte*>(copy.host_data()) + offset * size,
          static_cast<size_t>(count * size)};
}

void Trainer::write_previous_copy(int block, int64_t offset, std::span<const std::byte> values) {
  STAGECOACH_CHECK(impl_->executor->is_idle() && keeps_previous());
  impl_->state->write_previous_copy(block, offset, values);
}

int64_t Trainer::iteration() const {
  return impl_->iteration;
}

void Trainer::set_iteration(int64_t iteration) {
  impl_->iteration = iteration;
}

const LossScale& Trainer::loss_scale() const {
  return impl_->loss_scales.latest;
}

double Trainer::previous_loss_scale() const {
  return impl_->loss_scales.value_before(impl_->steps_asked - 1);
}

void Trainer::set_loss_scale(const LossScale& scale, double previous_value) {
  STAGECOACH_CHECK(impl_->steps_asked == kFirstStep);
  impl_->loss_scales.restart(scale, previous_value);
}

const Plan& Trainer::plan() const {
  return impl_->planned.training_plans.front();
}

const MeasuredRun* Trainer::measured() const {
  return impl_->tuner->has_measured() ? &impl_->tuner->measured() : nullptr;
}

std::vector<std::string> Trainer::take_notes() {
  return std::exchange(impl_->notes, {});
}

const Trace& Trainer::trace() {
  for (const TraceSlice& slice : impl_->predicted_pass()) impl_->trace.add(slice);
  impl_->last_pass.reset();
  return impl_->trace;
}

void Trainer::Impl::initialize(int block) {
  for (const ParameterInfo& parameter : network.blocks[block].parameters) {
    Status status = for_each_float_piece(
        parameter.shape.element_count(), [&](int64_t first, std::span<float> piece) {
          fill_initial(parameter, options.seed, first, piece, *pool);
          return state->write_parameters(block, parameter.offset + first, piece);
        });
    STAGECOACH_CHECK(status.is_ok());  // initializers yield finite numbers
  }
}

void Trainer::initialize_parameters() {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !is_reading());
  for (int block = 0; block < impl_->state->block_count(); ++block) {
    if (!impl_->state->is_mapped(block)) impl_->initialize(block);
  }
}

void Trainer::initialize_adapters() {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !is_reading());
  for (int block = 0; block < impl_->state->block_count(); ++block) {
    if (impl_->network.blocks[block].is_adapter) impl_->initialize(block);
  }
}

Status Trainer::map_base(std::shared_ptr<const MappedWeights> base) {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !impl_->base);
  for (const MappedWeightPart& part : base->parts()) {
    STAGECOACH_RETURN_IF_ERROR(impl_->state->map(part.block, part.offset, part.memory));
  }
  impl_->base = std::move(base);
  return Status::ok();
}

Status Trainer::set_parameter_group(const std::vector<std::string>& name_suffixes,
                                    ParameterGroup group) {
  bool matched = false;
  for (size_t block = 0; block < impl_->network.blocks.size(); ++block) {
    const std::vector<ParameterInfo>& parameters = impl_->network.blocks[block].parameters;
    for (size_t index = 0; index < parameters.size(); ++index) {
      if (!ends_with_any(parameters[index].name, name_suffixes)) continue;
      impl_->groups[block][index] = group;
      matched = true;
    }
  }
  if (!matched) return invalid_argument("no parameter's name ends with any of the given suffixes");
  return Status::ok();
}

TrainerReport Trainer::report() const {
  const Impl& impl = *impl_;
  TrainerReport report;
  report.schedule = impl.options.schedule;
  report.update = impl.options.update;
  report.activations = impl.planned.recomputes ? "recompute" : "keep";
  report.controller_fraction = median(impl.controller_fractions);
  report.update_exposed_fraction = median(impl.exposed_fractions);
  report.bubble_simulated = median(impl.simulated_bubbles);
  int64_t busy_ns = 0, overrun_ns = 0;
  for (Device* device : impl.devices) {
    report.devices.push_back(device->id());
    Result<MemoryUsage> usage = device->memory_usage();
    report.device_peak_bytes.push_back(usage.is_ok() ? usage->peak_bytes : 0);
    DeviceCounters counters = device->counters();
    busy_ns += counters.compute_busy_ns;
    overrun_ns += counters.overrun_ns;
  }
  if (busy_ns > 0) report.overrun = static_cast<double>(overrun_ns) / static_cast<double>(busy_ns);
  report.state_bytes = impl.state->bytes().state();
  report.mapped_bytes = impl.state->bytes().mapped;
  report.landing_bytes = impl.state->bytes().landing;
  report.host_state_bytes_per_parameter =
      static_cast<double>(report.state_bytes) / static_cast<double>(impl.network.parameter_count());
  report.host_planned_bytes = impl.host_planned_bytes;
  report.pinning = impl.pinning();
  report.bytes_up = impl.bytes_up;
  report.bytes_down = impl.bytes_down;
  if (impl.device_updates) report.device_share = impl.device_updates->share();
  report.shares = impl.planned.shares;
  report.device_planned_bytes = impl.planned_bytes;
  if (impl.planned.predicted) report.step_predicted_ns = impl.planned.predicted->step_ns;
  report.step_ns = median(impl.steps_ns);
  return report;
}

std::string Trainer::weights_sha256() const {
  Sha256 digest;
  for (size_t block = 0; block < impl_->network.blocks.size(); ++block) {
    if (impl_->network.blocks[block].is_frozen) continue;
    for (const ParameterInfo& parameter : impl_->network.blocks[block].parameters) {
      Status status = for_each_float_piece(
          parameter.shape.element_count(), [&](int64_t first, std::span<float> piece) {
            read_parameters(static_cast<int>(block), parameter.offset + first, piece);
            digest.update(piece.data(), static_cast<ByteCount>(piece.size_bytes()));
            return Status::ok();
          });
      STAGECOACH_CHECK(status.is_ok());  // reading cannot fail
    }
  }
  return digest.hex();
}

}  // namespace stagecoach
