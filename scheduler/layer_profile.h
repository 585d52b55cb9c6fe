#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "scheduler/plan.h"
#include "scheduler/row_input.h"

namespace stagecoach {

/// What planning knows of one layer, for one micro-batch on a device of speed 1.
struct LayerProfile {
  std::string name;
  double forward_ns = 0;
  double recompute_ns = 0;        ///< forward again, before backward, where the stage is not fused
  double early_stop_ns = 0;       ///< less of it in a stage's last layer, whose output nobody reads
  double backward_ns = 0;         ///< without recompute
  double update_ns = 0;           ///< the optimizer's, on the host
  ByteCount update_bytes = 0;     ///< of host memory that it touches; matters where that is limited
  ByteCount parameter_bytes = 0;  ///< compute copy, uploaded for every slot
  /// Shares of the parameters that travel as copies of their own, as do their gradients; empty:
  /// one. `shared_layers`: per copy the earlier layer that uploads it for both where one stage
  /// holds both, or -1; empty: none.
  std::vector<double> copy_shares;
  std::vector<int> shared_layers;
  int frozen_copies = 0;             ///< the first so many are not trained: nothing comes home
  ByteCount gradient_bytes = 0;      ///< sent home after the last micro-batch of a round
  ByteCount gradient_sum_bytes = 0;  ///< fp32 sum, where it is not what is sent
  ByteCount boundary_bytes = 0;      ///< output of the layer
  ByteCount input_bytes = 0;         ///< of the first layer: what goes in
  PerRowInput<ByteCount> row_bytes;  ///< uploaded beside the input of a stage that has the layer
  ByteCount report_bytes = 0;        ///< brought home beside what a forward yields
  ByteCount saved_bytes = 0;         ///< from forward to backward
  ByteCount forward_workspace_bytes = 0;
  ByteCount backward_workspace_bytes = 0;
};

/// What planning knows of one device.
struct PlannedDevice {
  std::string name;
  double speed = 1;            ///< a layer takes its time / speed
  ByteCount memory_bytes = 0;  ///< for stages; 0: no limit
  double up_bytes_per_ns = 0;  ///< host to device; 0: transfers take no time
  double down_bytes_per_ns = 0;
  int uplink = -1;  ///< index into StepSetup::uplinks; -1: it shares none

  /// Whether planning may exchange the two; links that they share with others do not count.
  bool equals(const PlannedDevice& other) const {
    return speed == other.speed && memory_bytes == other.memory_bytes &&
           up_bytes_per_ns == other.up_bytes_per_ns && down_bytes_per_ns == other.down_bytes_per_ns;
  }
};

/// A link to the host that several devices share beside their own. 0: no limit.
struct SharedUplink {
  std::string name;
  double up_bytes_per_ns = 0;
  double down_bytes_per_ns = 0;
};

/// What runtimes do differently with parameters and gradients. The defaults are this runtime's.
struct BulkHandling {
  /// Gradient sums of earlier rounds go up again with the parameters, instead of being added on the
  /// host.
  bool gradients_summed_on_device = false;
  /// All of a slot's gradients go down behind its last output and before the next slot's first,
  /// instead of layer by layer beside them.
  bool gradients_in_a_burst = false;
  static constexpr ByteCount kByLink = -1;
  /// Parameters and gradients travel in chunks of so much, between which activations go first; 0:
  /// in whole copies; kByLink: of bulk_chunk_bytes for each link.
  ByteCount chunk_bytes = kByLink;
};

/// When updates are made (design: update modes).
enum class UpdateMode : uint8_t {
  kBarrier,  ///< all updates between iterations
  kOverlap,  ///< as gradients land; a forward waits for the updates of its own layers
  kAsync     ///< RoundPipe's: an iteration computes with the result of the one before last
};

/// "barrier", "overlap" or "async".
std::string_view update_mode_name(UpdateMode mode);
/// The mode called `name`; else an invalid argument that lists them.
Result<UpdateMode> parse_update_mode(std::string_view name);

/// Everything a step of streamed stages depends on, apart from the stages.
struct StepSetup {
  std::vector<LayerProfile> layers;
  std::vector<PlannedDevice> devices;
  int micro_batches = 1;  ///< M, of an iteration
  int rounds = 1;         ///< divides M
  UpdateMode update = UpdateMode::kBarrier;
  /// Whether updates wait for the norm of all gradients, be it for clipping or for a loss scale.
  bool gated = false;
  int iterations = 0;  ///< simulated: 0 as many as a steady step needs, 1 one isolated iteration
  double hop_ns = 0;   ///< of each hand-over to another device, beside what bytes take
  std::vector<SharedUplink> uplinks;
  double host_bytes_per_ns = 0;  ///< of host memory for all copies and updates; 0: no limit
  BulkHandling bulk;

  int round_size() const { return micro_batches / rounds; }
  int device_count() const { return static_cast<int>(devices.size()); }
};

/// Refuses empty lists, times that are not finite or negative, a layer without time, speeds that
/// are not positive, uplinks that do not exist and rounds that do not divide the micro-batches;
/// names layer or device.
Status check_step_setup(const StepSetup& setup);

/// How slots find their device.
enum class SlotDispatch : uint8_t {
  kRotation,        ///< slot g, counted over all rounds and iterations, on device g mod N
  kByStage,         ///< SlotPlan::device_of_stage
  kEarliestFinish,  ///< the device on which the slot ends first, among those whose memory holds it
  kEveryDevice  ///< all of them, each with its share of the micro-batches (see micro_batch_shares);
                ///< predict_step alone knows it
};

/// Stages in data-flow order (F, FB, B) and where they run.
struct SlotPlan {
  std::vector<Stage> stages;
  SlotDispatch dispatch = SlotDispatch::kRotation;
  std::vector<int> device_of_stage;

  bool operator==(const SlotPlan&) const = default;
};

/// Micro-batches of a round that each device gets with kEveryDevice: device d those from entry d to
/// entry d + 1, in proportion to speeds.
std::vector<int> micro_batch_shares(const StepSetup& setup);

}  // namespace stagecoach
