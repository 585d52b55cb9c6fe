#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "hal/backend_registry.h"
#include "model/model_source.h"
#include "train/config.h"
#include "train/progress.h"
#include "train/trainer.h"

namespace stagecoach {

/// A model on its devices, ready to train, evaluate or generate.
struct ModelSession {
  ModelSource source;
  std::vector<std::unique_ptr<Device>> devices;  ///< declared before what uses them
  std::unique_ptr<Trainer> trainer;
};

/// Resolves MODEL and says what its config.json left to defaults. With init "weights", a model
/// without weights is refused. Adapters are those of MODEL, where it is an adapter's folder, or
/// those of model.lora, not both; a base is mapped only beside some. A sequence longer than the
/// model's positions is refused.
Result<ModelSource> resolve_model_for(const ModelConfig& model, int64_t sequence);

/// Settles train.router_loss, "auto" being what the model's config.json says, in both; a line tells
/// where it is on. Refused: one above 0 for a model without experts.
Status settle_router_loss(RunConfig& train, ModelSource& source);

/// Opens devices.use; devices.memory, unless "auto", limits every device that has no limit of its
/// own. With train.deterministic = true they compute only in ways that repeat bit for bit. Errors:
/// those of `BackendRegistry::open_devices`.
Result<std::vector<std::unique_ptr<Device>>> open_configured_devices(
    const BackendRegistry& backends, const TrainConfig& config);

/// Builds network and trainer on opened devices. With data.packing = "documents", as it is once
/// "auto" has been settled by the data, the network keeps documents apart. Parameters are not
/// filled yet. `pin_watch` as in TrainerOptions.
Result<std::unique_ptr<Trainer>> make_trainer(const ModelSource& source, NetworkHead head,
                                              const TrainConfig& config,
                                              const std::vector<std::unique_ptr<Device>>& devices,
                                              PinWatch pin_watch = {});

/// Fills parameters: from the source's weights, or at random when model.init says so. `progress`
/// shows how far reading is, and how fast it was.
/// Adapters come from the source's, or begin anew; a base is mapped where model.base says so.
Status fill_parameters(const ModelSource& source, const ModelConfig& model, Trainer& trainer,
                       Progress& progress);

/// The base alone, of a source with adapters.
Status fill_base(const ModelSource& source, const ModelConfig& model, Trainer& trainer,
                 Progress& progress);

/// All of the above for evaluation and generation.
Result<ModelSession> open_model_session(const BackendRegistry& backends, const TrainConfig& config,
                                        NetworkHead head, Progress& progress);

}  // namespace stagecoach
