#include "train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "model/gpt2.h"
#include "train/trainer.h"

namespace stagecoach {
namespace {

TEST(PinProgressText, SaysHowFarAndHowFast) {
  PinProgress progress{12 * kGiB, 100 * kGiB, 3'000'000'000};
  EXPECT_EQ(describe_pin_progress(progress),
            "pinning host memory: 12.00 GiB of 100.00 GiB, 4.0 GiB/s, 22 s left");
}

// A first signal ends a run whose memory is being pinned.
TEST(PinWatch, EndsTheCreationOfATrainer) {
  auto devices = built_in_backends().open_devices("cpu:1").value();
  Gpt2Config model;
  model.vocab_size = 257;
  model.n_positions = 8;
  model.n_embd = 16;
  model.n_layer = 2;
  model.n_head = 2;
  model.n_inner = 32;
  for (bool goes_on : {false, true}) {
    TrainerOptions options;
    options.batch = 4;
    options.sequence = 8;
    options.micro_batches = 2;
    ByteCount done = 0, total = -1;
    options.pin_watch = [&](const PinProgress& progress) {
      done = progress.done;
      total = progress.total;
      return goes_on;
    };
    auto trainer = Trainer::create(make_gpt2(model, NetworkHead::kLoss, DType::kBF16).value(),
                                   {devices[0].get()}, options);
    EXPECT_EQ(done, total);
    EXPECT_EQ(trainer.status().code(), goes_on ? StatusCode::kOk : StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace stagecoach
