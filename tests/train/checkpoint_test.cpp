#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/register_backends.h"
#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tests/train/token_file_image.h"
#include "train/evaluation.h"
#include "train/model_session.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : backends_(built_in_backends()) {
    config_.data.train = {"t.txt"};
    config_.data.sequence = 8;
    config_.train.batch = 4;
    config_.train.micro_batches = 2;
    config_.devices.use = "cpu:2";
    Gpt2Config config;
    config.vocab_size = 257;
    config.n_positions = 8;
    config.n_embd = 16;
    config.n_layer = 2;
    config.n_head = 2;
    config.n_inner = 32;
    source_.model = config;
    Result<std::vector<std::unique_ptr<Device>>> devices =
        open_configured_devices(backends_, config_);
    EXPECT_TRUE(devices.is_ok()) << devices.status().to_string();
    devices_ = std::move(devices).value();
  }

  std::unique_ptr<Trainer> trainer() {
    Result<std::unique_ptr<Trainer>> made =
        make_trainer(source_, NetworkHead::kLoss, config_, devices_);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    (*made)->initialize_parameters();
    return std::move(made).value();
  }
  void train(Trainer& trainer, int iterations) {
    for (int i = 0; i < iterations; ++i) {
      std::vector<int32_t> inputs(32), labels(32);
      for (int j = 0; j < 32; ++j) {
        inputs[j] = static_cast<int32_t>((trainer.iteration() * 7 + j) % 257);
        labels[j] = (inputs[j] + 1) % 257;
      }
      ASSERT_TRUE(
          trainer.forward_backward(HostTensor::of(inputs, {4, 8}), HostTensor::of(labels, {4, 8}))
              .is_ok());
      ASSERT_TRUE(trainer.step(1e-2).is_ok());
    }
    ASSERT_TRUE(trainer.synchronize().is_ok());
  }
  CheckpointRecord record(int64_t iteration) {
    CheckpointRecord record;
    record.iteration = iteration;
    record.config = train_config_to_json(config_);
    record.model = gpt2_config_to_json(gpt2());
    record.data_digest = "digest";
    record.loss_first = 5.5;
    record.loss_last = 5.25;
    return record;
  }
  Status save(Trainer& trainer, int64_t keep_last = 2) {
    return save_checkpoint(folder_.path(), record(trainer.iteration()), trainer, keep_last);
  }
  std::optional<FoundCheckpoint> find(std::vector<std::string>* notes) {
    Result<std::optional<FoundCheckpoint>> found = find_checkpoint(folder_.path(), notes);
    EXPECT_TRUE(found.is_ok()) << found.status().to_string();
    return found.is_ok() ? *found : std::nullopt;
  }

  BackendRegistry backends_;
  TrainConfig config_;
  const Gpt2Config& gpt2() const { return std::get<Gpt2Config>(source_.model); }

  ModelSource source_;
  std::vector<std::unique_ptr<Device>> devices_;
  TemporaryFolder folder_;
};

TEST_F(Checkpoint, ComesBackBitForBitAndTrainsOnAlike) {
  std::unique_ptr<Trainer> first = trainer();
  train(*first, 3);
  ASSERT_TRUE(save(*first).is_ok());
  std::vector<std::string> notes;
  std::optional<FoundCheckpoint> found = find(&notes);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->record.iteration, 3);
  EXPECT_EQ(found->record.loss_first, 5.5);
  EXPECT_EQ(found->record.weights_sha256, first->weights_sha256());
  std::unique_ptr<Trainer> second = trainer();
  Status loaded = load_checkpoint(*found, *second);
  ASSERT_TRUE(loaded.is_ok()) << loaded.to_string();
  EXPECT_EQ(second->iteration(), 3);
  train(*first, 2);
  train(*second, 2);
  EXPECT_EQ(second->weights_sha256(), first->weights_sha256());
  EXPECT_THAT(notes, IsEmpty());
}

// Weights and moments lie on disk in fp32 whatever the master is kept as.
TEST_F(Checkpoint, ASplitMasterComesBackBitForBitAndTrainsOnAlike) {
  config_.model.dtype = DType::kBF16;
  std::unique_ptr<Trainer> first = trainer();
  train(*first, 3);
  ASSERT_TRUE(save(*first).is_ok());
  std::vector<std::string> notes;
  std::optional<FoundCheckpoint> found = find(&notes);
  ASSERT_TRUE(found.has_value());
  std::unique_ptr<Trainer> second = trainer();
  Status loaded = load_checkpoint(*found, *second);
  ASSERT_TRUE(loaded.is_ok()) << loaded.to_string();
  EXPECT_EQ(second->weights_sha256(), found->record.weights_sha256);
  train(*first, 2);
  train(*second, 2);
  EXPECT_EQ(second->weights_sha256(), first->weights_sha256());
}

TEST_F(Checkpoint, TheLinkPointsToTheNewestAndOldOnesGo) {
  std::unique_ptr<Trainer> trained = trainer();
  for (int i = 0; i < 4; ++i) {
    train(*trained, 1);
    ASSERT_TRUE(save(*trained).is_ok());
    EXPECT_EQ(fs::read_symlink(folder_.file("checkpoint")), "checkpoint-" + std::to_string(i + 1));
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("checkpoint", "checkpoint-3", "checkpoint-4"));
  // Saving the same iteration again changes nothing.
  fs::file_time_type before = fs::last_write_time(folder_.file("checkpoint-4/config.json"));
  ASSERT_TRUE(save(*trained).is_ok());
  EXPECT_EQ(fs::last_write_time(folder_.file("checkpoint-4/config.json")), before);
}

TEST_F(Checkpoint, DamagedOnesAreSkippedWithANoteThatSaysWhy) {
  std::unique_ptr<Trainer> trained = trainer();
  for (int i = 0; i < 2; ++i) {
    train(*trained, 1);
    ASSERT_TRUE(save(*trained).is_ok());
  }
  std::string state = *read_file(folder_.file("checkpoint-2/trainer_state.json"));
  auto note_after = [&](const std::string& file, const std::string& content) {
    std::string path = folder_.file("checkpoint-2/" + file);
    std::string old = *read_file(path);
    EXPECT_TRUE(write_file_atomically(path, content).is_ok());
    std::vector<std::string> notes;
    std::optional<FoundCheckpoint> found = find(&notes);
    EXPECT_TRUE(found.has_value() && found->record.iteration == 1);
    EXPECT_TRUE(write_file_atomically(path, old).is_ok());
    return notes.empty() ? std::string() : notes[0];
  };
  EXPECT_THAT(note_after("trainer_state.json", state.substr(0, state.size() / 2)),
              HasSubstr("trainer_state.json"));
  EXPECT_THAT(note_after("trainer_state.json", "{}"), HasSubstr("keys are missing"));
  EXPECT_THAT(note_after("optimizer.safetensors", "x"), HasSubstr("holds 1 bytes of"));
  for (const char* wrong : {"-1", "0", "3", "9000000000"}) {
    std::string edited = state;
    edited.replace(edited.find("\"iteration\": 2"), 14, std::string("\"iteration\": ") + wrong);
    EXPECT_THAT(note_after("trainer_state.json", edited),
                HasSubstr(std::string("iteration is ") + wrong + "; it must be 2"));
  }
  fs::remove(folder_.file("checkpoint-2/model.safetensors"));
  std::vector<std::string> notes;
  EXPECT_EQ(find(&notes)->record.iteration, 1);
  EXPECT_THAT(notes.at(0), HasSubstr("model.safetensors is missing"));
}

TEST_F(Checkpoint, DamageToTheOnlyOneIsRefused) {
  std::unique_ptr<Trainer> trained = trainer();
  train(*trained, 1);
  ASSERT_TRUE(save(*trained).is_ok());
  fs::resize_file(folder_.file("checkpoint-1/model.safetensors"), 100);
  std::vector<std::string> notes;
  Status status = find_checkpoint(folder_.path(), &notes).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("none is whole"));
}

TEST_F(Checkpoint, AFlippedBitOfTheMomentsIsNoticed) {
  std::unique_ptr<Trainer> trained = trainer();
  train(*trained, 1);
  ASSERT_TRUE(save(*trained).is_ok());
  std::string path = folder_.file("checkpoint-1/optimizer.safetensors");
  std::string content = *read_file(path);
  content[content.size() - 10] ^= 1;
  ASSERT_TRUE(write_file_atomically(path, content).is_ok());
  std::vector<std::string> notes;
  std::optional<FoundCheckpoint> found = find(&notes);
  ASSERT_TRUE(found.has_value());
  Status status = load_checkpoint(*found, *trainer());
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("optimizer.safetensors"));
}

TEST_F(Checkpoint, FoldersOfOthersAreLeftAlone) {
  std::string foreign = folder_.file("checkpoint-1");
  fs::create_directory(foreign);
  ASSERT_TRUE(write_file_atomically(foreign + "/notes.txt", "precious").is_ok());
  std::unique_ptr<Trainer> trained = trainer();
  train(*trained, 1);
  EXPECT_THAT(save(*trained).message(), HasSubstr("is in the way"));
  for (int i = 0; i < 4; ++i) {
    train(*trained, 1);
    ASSERT_TRUE(save(*trained).is_ok());
  }
  EXPECT_EQ(*read_file(foreign + "/notes.txt"), "precious");
  EXPECT_FALSE(fs::exists(folder_.file("checkpoint-2")));
}

TEST_F(Checkpoint, AFolderInPlaceOfTheLinkStaysAndNothingIsLeftBesideIt) {
  std::unique_ptr<Trainer> trained = trainer();
  train(*trained, 1);
  ASSERT_TRUE(save(*trained).is_ok());
  fs::remove(folder_.file("checkpoint"));
  fs::create_directory(folder_.file("checkpoint"));
  ASSERT_TRUE(write_file_atomically(folder_.file("checkpoint/notes.txt"), "precious").is_ok());
  train(*trained, 1);
  Status status = save(*trained);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("checkpoint' is a folder where the link"));
  EXPECT_THAT(status.message(), HasSubstr("checkpoint-2' is whole: move the folder away"));
  EXPECT_EQ(*read_file(folder_.file("checkpoint/notes.txt")), "precious");
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(testing::EndsWith(".tmp")));
  }
  std::vector<std::string> notes;
  std::optional<FoundCheckpoint> found = find(&notes);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->record.iteration, 2);
}

TEST_F(Checkpoint, FormatsOfOtherVersionsAreRefusedNotSkipped) {
  std::unique_ptr<Trainer> trained = trainer();
  train(*trained, 1);
  ASSERT_TRUE(save(*trained).is_ok());
  std::string path = folder_.file("checkpoint-1/trainer_state.json");
  std::string state = *read_file(path);
  state.replace(state.find("\"format_version\": 1"), 19, "\"format_version\": 9");
  ASSERT_TRUE(write_file_atomically(path, state).is_ok());
  std::vector<std::string> notes;
  Result<std::optional<FoundCheckpoint>> found = find_checkpoint(folder_.path(), &notes);
  ASSERT_FALSE(found.is_ok());
  EXPECT_THAT(found.status().message(), HasSubstr("format_version is 9"));
}

TEST_F(Checkpoint, ResumingComparesInTheOrderOfTheContract) {
  std::unique_ptr<Trainer> trained = trainer();
  train(*trained, 1);
  ASSERT_TRUE(save(*trained).is_ok());
  std::vector<std::string> notes;
  FoundCheckpoint found = *find(&notes);
  Json model = gpt2_config_to_json(gpt2());
  auto difference = [&](const TrainConfig& config, const Json& with_model,
                        const std::string& digest) {
    return check_resumable(found, config, with_model, digest, &notes).message();
  };
  EXPECT_THAT(difference(config_, model, "digest"), IsEmpty());
  EXPECT_THAT(notes, IsEmpty());

  TrainConfig all = config_;
  all.optimizer.lr = 0.5;
  all.train.batch = 8;
  Gpt2Config wide = gpt2();
  wide.n_embd = 32;
  EXPECT_THAT(difference(all, gpt2_config_to_json(wide), "other"), HasSubstr("n_embd"));
  EXPECT_THAT(difference(all, model, "other"), HasSubstr("training tokens"));
  EXPECT_THAT(difference(all, model, "digest"), HasSubstr("train.batch is 4 there and 8 here"));
  all.train.batch = 4;
  EXPECT_THAT(difference(all, model, "digest"), HasSubstr("optimizer.lr"));
  TrainConfig terms = config_;
  terms.train.z_loss = 1e-4;
  EXPECT_THAT(difference(terms, model, "digest"),
              HasSubstr("train.z_loss is 0.0 there and 0.0001 here"));
  terms.train.z_loss = 0;
  terms.train.label_smoothing = 0.1;
  EXPECT_THAT(difference(terms, model, "digest"), HasSubstr("train.label_smoothing"));
  terms.train.label_smoothing = 0;
  terms.train.router_loss = 0.5;  // a run's own record says what "auto" came to
  EXPECT_THAT(difference(terms, model, "digest"),
              HasSubstr("train.router_loss is 0 there and 0.5 here"));
  terms.train.router_loss = 0;
  EXPECT_THAT(difference(terms, model, "digest"), IsEmpty());

  // Other devices, schedule or length are no difference; other bits are worth a note.
  TrainConfig moved = config_;
  moved.devices.use = "cpu:1";
  moved.schedule.kind = "single";
  moved.train.iterations = 7;
  EXPECT_THAT(difference(moved, model, "digest"), IsEmpty());
  EXPECT_THAT(notes, IsEmpty());
  moved.train.micro_batches = 4;
  EXPECT_THAT(difference(moved, model, "digest"), IsEmpty());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("train.microbatches was 2 and is 4 now"));
}

TEST_F(Checkpoint, ChecksFreeSpaceWithNumbers) {
  EXPECT_TRUE(check_free_space(folder_.path(), 1).is_ok());
  EXPECT_TRUE(check_free_space(folder_.file("not/there/yet"), 1).is_ok());
  Status status = check_free_space(folder_.file("not/there/yet"), ByteCount{1} << 60);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("checkpoints need 1152921504606846976 bytes"));
  std::unique_ptr<Trainer> trained = trainer();
  EXPECT_GE(checkpoint_bytes(*trained), 12 * trained->network().parameter_count());
}

TEST_F(Checkpoint, EvaluationCountsEveryTargetOnce) {
  std::unique_ptr<Trainer> trained = trainer();
  train(*trained, 5);
  TokenFileImage image;
  for (uint32_t i = 0; i < 101; ++i) image.ids.push_back((i * i) % 257);
  auto evaluate = [&](const TokenFileImage& tokens, int64_t limit) {
    TokenData data = data_of({tokens}, Packing::kStream);
    TokenWindows windows = TokenWindows::create(data, 8, true).value();
    Result<Evaluation> result = evaluate_windows(*trained, windows, 4, limit);
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    return result.is_ok() ? *result : Evaluation{};
  };
  Evaluation all = evaluate(image, 1000);
  EXPECT_EQ(all.tokens, 100);
  // Windows are independent: the parts add up to the whole, whatever the batching.
  Evaluation first = evaluate(image, 40);
  TokenFileImage rest = image;
  rest.ids.erase(rest.ids.begin(), rest.ids.begin() + 40);
  Evaluation second = evaluate(rest, 1000);
  EXPECT_EQ(first.tokens, 40);
  EXPECT_EQ(second.tokens, 60);
  EXPECT_NEAR(all.loss, (40 * first.loss + 60 * second.loss) / 100, 1e-6);
  // Field report 79: documents of one file count as each of them alone.
  auto padded = [&](const TokenFileImage& tokens) {
    TokenData data = data_of({tokens}, Packing::kPad);
    TokenWindows windows = TokenWindows::create(data, 8, true).value();
    return evaluate_windows(*trained, windows, 4, 1000).value();
  };
  TokenFileImage both = image, head = image;
  both.documents = {0, 40};
  head.ids.resize(40);
  Evaluation together = padded(both), one = padded(head), two = padded(rest);
  EXPECT_EQ(together.tokens, 39 + 60);
  EXPECT_NEAR(together.loss, (39 * one.loss + 60 * two.loss) / 99, 1e-6);
  both.ids[5] = head.ids[5] = 77;  // what the first holds changes nothing of the second
  Evaluation changed = padded(head);
  EXPECT_GT(std::abs(changed.loss - one.loss), 1e-4);
  EXPECT_NEAR(padded(both).loss, (39 * changed.loss + 60 * two.loss) / 99, 1e-6);
  // What is masked does not count, and neither does it change what does.
  image.mask.assign(image.ids.size(), true);
  std::fill(image.mask.begin() + 41, image.mask.end(), false);
  Evaluation masked = evaluate(image, 1000);
  EXPECT_EQ(masked.tokens, 40);
  EXPECT_EQ(masked.loss, first.loss);
}

}  // namespace
}  // namespace stagecoach
