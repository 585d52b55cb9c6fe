// Documents that share a sequence: losses and gradients are those of each document in a sequence of
// its own, on models of tests/reference/decoders (field report 79).
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "backends/register_backends.h"
#include "model/model_source.h"
#include "model/weight_transfer.h"
#include "tests/model/test_devices.h"
#include "train/labels.h"
#include "train/trainer.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kLength = 16;
/// Lengths of the documents in each sequence; the third is not full.
const std::vector<std::vector<int64_t>> kDocuments = {{5, 11}, {16}, {3, 3, 7}, {1, 9, 6}};
constexpr int64_t kPaddedSequences = 12;  // nine documents; the others have no targets

struct Batch {
  std::vector<int32_t> inputs, labels, starts;
  Shape shape;

  explicit Batch(int64_t sequences)
      : inputs(static_cast<size_t>(sequences * kLength), 0),
        labels(inputs.size(), kIgnoredLabel),
        shape{sequences, kLength} {}
};

/// Token `i` of document `d`; some labels do not count.
void put(Batch& batch, int64_t at, int64_t d, int64_t i) {
  auto token = [d](int64_t place) { return static_cast<int32_t>((d * 11 + place * 7 + 3) % 37); };
  batch.inputs[static_cast<size_t>(at)] = token(i);
  batch.labels[static_cast<size_t>(at)] = (d + i) % 5 == 2 ? kIgnoredLabel : token(i + 1);
}

Batch packed() {
  Batch batch(static_cast<int64_t>(kDocuments.size()));
  batch.starts.resize(batch.inputs.size());
  int64_t d = 0;
  for (size_t s = 0; s < kDocuments.size(); ++s) {
    int64_t first = static_cast<int64_t>(s) * kLength, at = 0;
    for (int64_t length : kDocuments[s]) {
      for (int64_t i = 0; i < length; ++i) {
        put(batch, first + at + i, d, i);
        batch.starts[static_cast<size_t>(first + at + i)] = static_cast<int32_t>(at);
      }
      at += length;
      ++d;
    }
    for (int64_t rest = at; rest < kLength; ++rest) {
      batch.starts[static_cast<size_t>(first + rest)] = static_cast<int32_t>(at);
    }
  }
  return batch;
}

Batch padded() {
  Batch batch(kPaddedSequences);
  int64_t d = 0;
  for (const std::vector<int64_t>& sequence : kDocuments) {
    for (int64_t length : sequence) {
      for (int64_t i = 0; i < length; ++i) put(batch, d * kLength + i, d, i);
      ++d;
    }
  }
  return batch;
}

struct Execution {
  const char* schedule;
  const char* devices;
  int micro_batches;
  const char* activations = "auto";
};

/// A model with its weights. Moments are gradients, because AdamW forgets all older ones.
struct LoadedModel {
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Trainer> trainer;

  LoadedModel(const std::string& model, const Execution& setup, const Shape& shape,
              bool has_documents) {
    std::string folder = std::string(STAGECOACH_SOURCE_DIR) + "/tests/reference/decoders/" + model;
    Result<ModelSource> source = resolve_model(folder);
    STAGECOACH_CHECK(source.is_ok());
    Result<Network> network =
        make_network(source->model, NetworkHead::kLoss, DType::kF32, kLength, {}, has_documents);
    STAGECOACH_CHECK(network.is_ok());
    devices = built_in_backends().open_devices(test_devices(setup.devices)).value();
    std::vector<Device*> used;
    for (const auto& device : devices) used.push_back(device.get());
    TrainerOptions options;
    options.batch = shape[0];
    options.sequence = kLength;
    options.micro_batches = setup.micro_batches;
    options.schedule = setup.schedule;
    options.activations = setup.activations;
    options.update = "barrier";
    options.beta1 = 0;
    options.clip_norm = 0;
    Result<std::unique_ptr<Trainer>> made =
        Trainer::create(std::move(network).value(), used, options);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    trainer = std::move(made).value();
    auto write = [&](int block, int64_t offset, std::span<const float> values) {
      return trainer->write_parameters(block, offset, values);
    };
    EXPECT_TRUE(load_weights(folder, trainer->network(), write).is_ok());
  }

  Result<StepLoss> evaluate(const Batch& batch) {
    return trainer->evaluate(HostTensor::of(batch.inputs, batch.shape),
                             HostTensor::of(batch.labels, batch.shape),
                             HostTensor::of_any(batch.starts, batch.shape));
  }
};

using Tensors = std::map<std::string, std::vector<float>>;

struct Outcome {
  StepLoss evaluated, trained;
  Tensors gradients;
};

Outcome outcome_of(const std::string& model, const Execution& setup, const Batch& batch) {
  LoadedModel run(model, setup, batch.shape, !batch.starts.empty());
  Outcome outcome;
  outcome.evaluated = run.evaluate(batch).value();
  outcome.trained = run.trainer
                        ->forward_backward(HostTensor::of(batch.inputs, batch.shape),
                                           HostTensor::of(batch.labels, batch.shape), {},
                                           HostTensor::of_any(batch.starts, batch.shape))
                        .value();
  EXPECT_TRUE(run.trainer->step(1e-3).is_ok());
  EXPECT_TRUE(run.trainer->synchronize().is_ok());
  const Network& network = run.trainer->network();
  for (size_t block = 0; block < network.blocks.size(); ++block) {
    if (network.blocks[block].is_frozen) continue;
    for (const ParameterInfo& parameter : network.blocks[block].parameters) {
      std::vector<float>& values = outcome.gradients[parameter.name];
      values.resize(static_cast<size_t>(parameter.shape.element_count()));
      run.trainer->read_moment(Moment::kFirst, static_cast<int>(block), parameter.offset, values);
    }
  }
  return outcome;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (float value : values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

/// Distances relative to a tensor's norm; of gradients that are rounding alone, as those of the
/// biases of keys, to a hundredth of the largest.
void expect_same_gradients(const Tensors& found, const Tensors& expected) {
  double largest = 0;
  for (const auto& [name, values] : expected) largest = std::max(largest, norm_of(values));
  EXPECT_GT(largest, 1e-3);
  for (const auto& [name, values] : expected) {
    std::vector<float> difference = found.at(name);
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    EXPECT_LE(norm_of(difference), 5e-6 * std::max(norm_of(values), 0.01 * largest)) << name;
  }
}

class PackedDocuments : public testing::TestWithParam<const char*> {};

TEST_P(PackedDocuments, LearnAsEachDocumentInASequenceOfItsOwn) {
  Outcome expected = outcome_of(GetParam(), {"roundpipe", "cpu:1", 3}, padded());
  for (const Execution& setup :
       {Execution{"roundpipe", "cpu:1", 1}, Execution{"roundpipe", "cpu:3", 4},
        Execution{"1f1b", "cpu:2", 2, "keep"}, Execution{"1f1b", "cpu:2", 2, "recompute"},
        Execution{"zb-h1", "cpu:2", 4}, Execution{"gpipe", "cpu:2", 4}}) {
    SCOPED_TRACE(testing::Message() << setup.schedule << " " << setup.devices << " "
                                    << setup.micro_batches << " " << setup.activations);
    Outcome found = outcome_of(GetParam(), setup, packed());
    EXPECT_EQ(found.trained.targets, expected.trained.targets);
    EXPECT_NEAR(found.trained.loss, expected.trained.loss, 1e-6 * expected.trained.loss);
    EXPECT_NEAR(found.evaluated.loss, expected.evaluated.loss, 1e-6 * expected.evaluated.loss);
    expect_same_gradients(found.gradients, expected.gradients);
  }
}

// What a document holds changes no bit of another's loss; without starts it does.
TEST_P(PackedDocuments, DoNotSeeEachOther) {
  Batch batch = packed();
  LoadedModel run(GetParam(), {"roundpipe", "cpu:1", 2}, batch.shape, true);
  // Of the first and the last sequence the second document counts.
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    bool counts = (i >= 5 && i < 16) || (i >= 49 && i < 58);
    if (!counts) batch.labels[i] = kIgnoredLabel;
  }
  Batch changed = batch;
  for (size_t i : {0u, 1u, 2u, 3u, 4u, 20u, 40u, 48u, 58u, 63u}) {
    changed.inputs[i] = (changed.inputs[i] + 5) % 37;
  }
  double loss = run.evaluate(batch)->loss;
  EXPECT_EQ(run.evaluate(changed)->loss, loss);
  batch.starts.clear();
  changed.starts.clear();
  EXPECT_NE(run.evaluate(changed)->loss, run.evaluate(batch)->loss);
}

INSTANTIATE_TEST_SUITE_P(Models, PackedDocuments,
                         testing::Values("gpt2", "llama-linear", "llama-llama3-tied-biases",
                                         "qwen3-tied-yarn", "qwen3-windows-by-layer", "qwen3-moe",
                                         "gpt-oss"));

TEST(DocumentStarts, ThatAreNoneAreRefusedWithTheirPlace) {
  Batch batch = packed();
  LoadedModel run("qwen3", {"roundpipe", "cpu:1", 2}, batch.shape, true);
  batch.starts[kLength + 3] = 2;
  EXPECT_THAT(run.evaluate(batch).status().message(),
              HasSubstr("sequence 1, position 3 is 2; allowed: 3 or 0"));
  batch.starts.resize(2 * kLength);
  EXPECT_THAT(run.trainer
                  ->evaluate(HostTensor::of(batch.inputs, batch.shape),
                             HostTensor::of(batch.labels, batch.shape),
                             HostTensor::of(batch.starts, Shape{2, kLength}))
                  .status()
                  .message(),
              AllOf(HasSubstr("hold 32 elements"), HasSubstr("expected 64")));
  LoadedModel plain("qwen3", {"roundpipe", "cpu:1", 2}, batch.shape, false);
  EXPECT_THAT(plain.evaluate(packed()).status().message(), HasSubstr("takes no document starts"));
}

}  // namespace
}  // namespace stagecoach
