#include "model/mxfp4.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "model/weight_transfer.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {

namespace {

using testing::HasSubstr;

/// By the definition of the format: a sign, two bits of exponent, one of mantissa.
double number(unsigned bits, unsigned scale) {
  double exponent = bits >> 1 & 3u, mantissa = bits & 1u;
  double magnitude = exponent == 0 ? mantissa / 2 : (1 + mantissa / 2) * std::exp2(exponent - 1);
  return (bits >> 3 != 0 ? -magnitude : magnitude) * std::exp2(static_cast<double>(scale) - 127);
}

TEST(Mxfp4, EveryNumberUnderEveryScaleIsExact) {
  for (unsigned scale = 0; scale < 256; ++scale) {
    std::vector<uint8_t> blocks, scales = {static_cast<uint8_t>(scale)};
    for (unsigned byte = 0; byte < 16; ++byte) {
      blocks.push_back(static_cast<uint8_t>(byte | (15 - byte) << 4));
    }
    std::vector<float> out(32);
    Status status = decode_mxfp4_columns({1, 1, blocks, scales}, 0, out);
    // Under 2^126 fp32 has no 4 and no 6; and 255 is no number.
    if (scale >= 253) {
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << scale;
      continue;
    }
    ASSERT_TRUE(status.is_ok()) << scale;
    for (unsigned i = 0; i < 32; ++i) {
      unsigned bits = i % 2 == 0 ? i / 2 : 15 - i / 2;
      EXPECT_EQ(double{out[i]}, number(bits, scale)) << scale << " " << bits;
    }
  }
}

TEST(Mxfp4, SmallNumbersUnderTheLargestScalesAreNumbers) {
  std::vector<uint8_t> blocks(16, 0x21), scales = {254};  // 0.5 and 1
  std::vector<float> out(32);
  ASSERT_TRUE(decode_mxfp4_columns({1, 1, blocks, scales}, 0, out).is_ok());
  EXPECT_EQ(out[0], 0x1p126f);
  EXPECT_EQ(out[1], 0x1p127f);
  scales[0] = 255;
  blocks.assign(16, 0);
  EXPECT_FALSE(decode_mxfp4_columns({1, 1, blocks, scales}, 0, out).is_ok());
}

constexpr int64_t kExperts = 2, kRows = 300, kColumns = 1024;  // more than one piece a matrix
const std::string kName = "model.layers.0.mlp.experts.gate_up_proj";

/// A folder with packed matrices, and a network that has them transposed.
class Mxfp4Folder : public testing::Test {
 protected:
  Mxfp4Folder() {
    ParameterBlock block;
    block.name = "layers.0";
    block.site_count = 1;
    block.add(kName, Shape{kExperts, kColumns, kRows}, true, {Initializer::Kind::kZeros, 0});
    network_.blocks.push_back(block);
    blocks_.resize(kExperts * kRows * kColumns / 2);
    scales_.resize(kExperts * kRows * kColumns / 32);
    for (uint8_t& byte : blocks_) byte = static_cast<uint8_t>(random_());
    for (uint8_t& byte : scales_) byte = static_cast<uint8_t>(100 + random_() % 40);
    add("_blocks", {kExperts, kRows, kColumns / 32, 16}, blocks_);
    add("_scales", {kExperts, kRows, kColumns / 32}, scales_);
  }

  void add(const std::string& end, std::vector<int64_t> shape, const std::vector<uint8_t>& bytes) {
    tensors_[kName + end] = {kName + end, SafetensorsType::kU8, std::move(shape), bytes.data()};
  }

  Status load() {
    std::vector<SafetensorsTensor> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(tensor);
    EXPECT_TRUE(write_safetensors(folder_.file("model.safetensors"), list).is_ok());
    loaded_.assign(static_cast<size_t>(network_.blocks[0].element_count), NAN);
    auto sink = [&](int, int64_t offset, std::span<const float> values) {
      std::copy(values.begin(), values.end(), loaded_.begin() + offset);
      return Status::ok();
    };
    Result<LoadedWeights> result = load_weights(folder_.path(), network_, sink);
    if (result.is_ok()) bytes_ = result->bytes;
    return result.status();
  }

  void expect_refused(const std::string& message) {
    Status status = load();
    EXPECT_FALSE(status.is_ok());
    EXPECT_THAT(status.message(), HasSubstr(message));
  }

  std::mt19937 random_{7};
  Network network_;
  std::vector<uint8_t> blocks_, scales_;
  std::map<std::string, SafetensorsTensor> tensors_;
  std::vector<float> loaded_;
  ByteCount bytes_ = 0;
  TemporaryFolder folder_;
};

TEST_F(Mxfp4Folder, MatricesAreUnpackedAndTransposed) {
  ASSERT_TRUE(load().is_ok());
  EXPECT_EQ(bytes_, kExperts * kRows * kColumns / 32 * 17);
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        int64_t place = (expert * kRows + row) * kColumns + column;
        unsigned byte = blocks_[static_cast<size_t>(place / 2)];
        unsigned scale = scales_[static_cast<size_t>(place / 32)];
        double expected = number(place % 2 == 0 ? byte & 15u : byte >> 4, scale);
        int64_t at = (expert * kColumns + column) * kRows + row;
        ASSERT_EQ(double{loaded_[static_cast<size_t>(at)]}, expected) << place;
      }
    }
  }
}

TEST_F(Mxfp4Folder, WhatDoesNotFitIsRefusedByName) {
  auto blocks = tensors_.at(kName + "_blocks"), scales = tensors_.at(kName + "_scales");
  tensors_.erase(kName + "_scales");
  expect_refused("tensor '" + kName + "_blocks' is there without '" + kName + "_scales'");
  tensors_ = {{scales.name, scales}};
  expect_refused("tensor '" + kName + "_scales' is there without '" + kName + "_blocks'");
  tensors_ = {{scales.name, scales}, {blocks.name, blocks}};
  tensors_[blocks.name].shape = {kExperts, kRows, 16, kColumns / 32};
  expect_refused("_blocks' is U8 [2,300,16,32], expected U8 [2,300,32,16]");
  tensors_[blocks.name] = blocks;
  tensors_[scales.name].shape = {kExperts, kRows * kColumns / 32};
  expect_refused("_scales' is U8 [2,9600], expected U8 [2,300,32]");
  tensors_[scales.name] = scales;
  tensors_[scales.name].type = SafetensorsType::kBool;
  expect_refused("_scales' is BOOL [2,300,32], expected U8");
  tensors_[scales.name] = scales;
  float number = 0;
  tensors_["other"] = {"other", SafetensorsType::kF32, {1}, &number};
  expect_refused("1 tensors belong to no parameter of the model: 'other'");
}

TEST_F(Mxfp4Folder, PackedAndPlainTogetherAreRefused) {
  std::vector<float> plain(loaded_.size());
  plain.assign(static_cast<size_t>(network_.blocks[0].element_count), 0.0f);
  tensors_[kName] = {kName, SafetensorsType::kF32, {kExperts, kColumns, kRows}, plain.data()};
  expect_refused("2 tensors belong to no parameter of the model: '" + kName + "_blocks'");
}

TEST_F(Mxfp4Folder, AScaleThatIsNoNumberIsNamed) {
  scales_[kRows * kColumns / 32 + 33] = 255;
  expect_refused("tensor '" + kName + "_scales', matrix 1: row 1, group 1: a scale of 255");
  EXPECT_EQ(load().code(), StatusCode::kDataLoss);
}

}  // namespace

}  // namespace stagecoach
