#include "model/safetensors.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "core/dtype.h"
#include "core/file.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {

namespace {

std::string length_bytes(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

/// A file with this header and `data_size` bytes of data.
std::string make_file(const std::string& header, size_t data_size) {
  return length_bytes(header.size()) + header + std::string(data_size, '\x3f');
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()},
                           static_cast<ByteCount>(file.size()), "w.safetensors");
}

void expect_refused(const std::string& file, const std::string& words,
                    StatusCode code = StatusCode::kDataLoss) {
  Result<SafetensorsHeader> header = parse(file);
  ASSERT_FALSE(header.is_ok()) << words;
  EXPECT_EQ(header.status().code(), code) << words;
  EXPECT_NE(header.status().message().find(words), std::string::npos)
      << header.status().message() << "\nexpected: " << words;
  EXPECT_NE(header.status().message().find("w.safetensors"), std::string::npos);
}

std::string entry(const std::string& name, const std::string& shape, int64_t begin, int64_t end,
                  const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(Safetensors, reads_any_order_of_keys_and_empty_tensors) {
  std::string header = "{" + entry("b", "[2,3]", 8, 32) + "," + entry("e", "[0]", 32, 32) + "," +
                       entry("a", "[]", 0, 4) + "," + entry("c", "[2]", 4, 8, "BF16") +
                       ",\"__metadata__\":{\"format\":\"pt\"}}   ";
  Result<SafetensorsHeader> parsed = parse(make_file(header, 32));
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
  ASSERT_EQ(parsed->tensors.size(), 4u);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(parsed->tensors[1].offset, static_cast<ByteCount>(8 + header.size() + 8));
  EXPECT_EQ(parsed->tensors[2].type, SafetensorsType::kBF16);
  EXPECT_EQ(parsed->tensors[3].size, 0);
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
}

TEST(Safetensors, reads_a_file_without_a_format_tag) {
  EXPECT_TRUE(parse(make_file("{" + entry("a", "[1]", 0, 4) + "}", 4)).is_ok());
}

TEST(Safetensors, refuses_header_lengths_that_lie) {
  std::string good = make_file("{" + entry("a", "[1]", 0, 4) + "}", 4);
  auto with_length = [&](uint64_t length) { return length_bytes(length) + good.substr(8); };
  expect_refused(good.substr(0, 7),
                 "7 bytes found, at least 8 expected: incomplete download or copy");
  expect_refused("", "0 bytes found");
  expect_refused(with_length(std::numeric_limits<uint64_t>::max()),
                 "header length is 18446744073709551615, expected at most 100000000");
  expect_refused(with_length(uint64_t{1} << 63), "header length is 9223372036854775808");
  expect_refused(with_length(100'000'001), "header length is 100000001");
  expect_refused(with_length(good.size() - 8 + 1),
                 "the header ends at byte " + std::to_string(good.size() + 1) + ", the file has " +
                     std::to_string(good.size()) + ": incomplete download or copy");
  expect_refused(with_length(0), "the header is not a JSON object");
  expect_refused(with_length(1), "header: ");
}

TEST(Safetensors, refuses_truncated_files) {
  std::string good = make_file("{" + entry("a", "[4]", 0, 16) + "}", 16);
  expect_refused(good.substr(0, good.size() - 1),
                 "tensor 'a': ends at byte 16 of the data, the file has 15: incomplete download or "
                 "copy");
  expect_refused(good.substr(0, good.size() / 2), "incomplete download or copy");
}

TEST(Safetensors, refuses_bytes_of_no_tensor_and_of_two) {
  expect_refused(make_file("{" + entry("a", "[1]", 0, 4) + "}", 20),
                 "bytes 4 to 20 of the data belong to no tensor");
  expect_refused(
      make_file("{" + entry("a", "[1]", 0, 4) + "," + entry("b", "[1]", 68, 72) + "}", 72),
      "bytes 4 to 68 of the data belong to no tensor");
  expect_refused(make_file("{" + entry("a", "[1]", 4, 8) + "}", 8),
                 "bytes 0 to 4 of the data belong to no tensor");
  expect_refused(make_file("{}", 8), "bytes 0 to 8 of the data belong to no tensor");
  expect_refused(make_file("{" + entry("k", "[2]", 0, 8) + "," + entry("v", "[2]", 0, 8) + "}", 8),
                 "tensors 'k' and 'v' share bytes 0 to 8 of the data");
  expect_refused(
      make_file("{" + entry("k", "[2]", 0, 8) + "," + entry("v", "[2]", 4, 12) + "}", 12),
      "tensors 'k' and 'v' share bytes 4 to 8 of the data");
}

TEST(Safetensors, refuses_offsets_that_disagree_with_the_shape) {
  expect_refused(make_file("{" + entry("a", "[1000,1000]", 0, 4) + "}", 4),
                 "tensor 'a': shape [1000,1000] of F32 needs 4000000 bytes, data_offsets 0 to 4 "
                 "hold 4");
  expect_refused(make_file("{" + entry("a", "[1]", 8, 4) + "}", 8),
                 "data_offsets are 8 and 4, expected 0 <= begin <= end");
  expect_refused(make_file("{" + entry("a", "[1]", -1, 3) + "}", 8), "data_offsets are -1 and 3");
  expect_refused(make_file("{" + entry("a", "[4294967296,4294967296]", 0, 4) + "}", 4),
                 "shape [4294967296,4294967296] does not fit 63 bits");
  expect_refused(make_file("{" + entry("a", "[9223372036854775807,0,2]", 0, 4) + "}", 4),
                 "needs 0 bytes");
  expect_refused(make_file("{" + entry("a", "[1e3]", 0, 4000) + "}", 4000),
                 "shape has 1000.0, expected integers >= 0");
  expect_refused(make_file("{" + entry("a", "[-1]", 0, 4) + "}", 4), "shape has -1");
  expect_refused(
      make_file(
          "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551615]}}", 4),
      "data_offsets is missing or not two integers");
}

TEST(Safetensors, refuses_malformed_headers) {
  expect_refused(make_file("{" + entry("a", "[1]", 0, 4) + "," + entry("a", "[1]", 0, 4) + "}", 4),
                 "key 'a' appears twice");
  expect_refused(make_file("[]", 0), "the header is not a JSON object");
  expect_refused(make_file("{\"a\":", 0), "header: ");
  expect_refused(make_file("{\"a\":3}", 0), "tensor 'a': is integer, expected a table");
  expect_refused(make_file("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
                 "dtype is missing or not text");
  expect_refused(make_file("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4),
                 "shape is missing or not a list");
  expect_refused(make_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4),
                 "data_offsets is missing or not two integers");
  expect_refused(
      make_file("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"scale\":2}}", 4),
      "unknown field 'scale'");
  expect_refused(make_file("{\"__metadata__\":{\"format\":1}}", 0),
                 "__metadata__ 'format' is 1, expected text");
  expect_refused(make_file("{\"__metadata__\":[]}", 0), "__metadata__ is not a table");
  expect_refused(make_file("{" + entry("a", "[4]", 0, 4, "F8_E4M3") + "}", 4),
                 "tensor 'a': dtype is F8_E4M3, expected F32", StatusCode::kUnimplemented);
}

/// Whatever is done to a file, it is read within its bounds or refused.
TEST(Safetensors, survives_random_damage) {
  std::string good =
      make_file("{\"__metadata__\":{\"format\":\"pt\"}," + entry("h.0.w", "[3,4]", 0, 48) + "," +
                    entry("h.0.b", "[4]", 48, 64) + "," + entry("wte", "[5,2]", 64, 84, "BF16") +
                    "," + entry("none", "[0]", 84, 84) + "}",
                84);
  ASSERT_TRUE(parse(good).is_ok());
  const std::string spice = "0123456789-+.eE[]{}\",: \\\x00\xff";
  std::mt19937_64 random(11);
  auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = good;
    for (size_t edits = 1 + pick(4); edits > 0 && !file.empty(); --edits) {
      size_t at = pick(file.size());
      switch (pick(6)) {
        case 0:
          file[at] = static_cast<char>(file[at] ^ (1 << pick(8)));
          break;
        case 1:
          file[at] = static_cast<char>(random());
          break;
        case 2:
          file[at] = spice[pick(spice.size())];
          break;
        case 3:
          file.resize(at);
          break;
        case 4:
          file.insert(at, 1, spice[pick(spice.size())]);
          break;
        default:
          file.erase(at, 1 + pick(8));
          break;
      }
    }
    Result<SafetensorsHeader> parsed = parse(file);
    (parsed.is_ok() ? accepted : refused)++;
    if (!parsed.is_ok()) continue;
    for (const SafetensorInfo& tensor : parsed->tensors) {
      ASSERT_GE(tensor.offset, 8) << "round " << round;
      ASSERT_GE(tensor.size, 0) << "round " << round;
      ASSERT_LE(tensor.offset + tensor.size, static_cast<ByteCount>(file.size()))
          << "round " << round;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 10000);
}

class SafetensorsFiles : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(SafetensorsFiles, written_files_read_back_sorted_tagged_and_aligned) {
  std::vector<float> a = {1.5f, -2.0f, 3.0f};
  std::vector<float> b = {4.0f};
  std::string path = folder_.file("model.safetensors");
  ASSERT_TRUE(write_safetensors(path, {{"b", SafetensorsType::kF32, {1, 1}, b.data()},
                                       {"a", SafetensorsType::kF32, {3}, a.data()}})
                  .is_ok());
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  const SafetensorInfo* tensor = file->find("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->offset % 8, 0);
  EXPECT_LT(tensor->offset, file->find("b")->offset);
  EXPECT_EQ(file->find("c"), nullptr);
  std::vector<float> read(3);
  ASSERT_TRUE(file->read_f32(*tensor, 0, read).is_ok());
  EXPECT_EQ(read, a);
  // Nothing but the file is left behind.
  int entries = 0;
  for ([[maybe_unused]] const auto& found : std::filesystem::directory_iterator(folder_.path())) {
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

TEST_F(SafetensorsFiles, converts_16_bit_elements_exactly) {
  std::vector<uint16_t> halves = {0x7bff, 0x0001, 0xc000};  // 65504, 2^-24, -2
  std::vector<uint16_t> brains = {0x3f80, 0xc040, 0x0001};  // 1, -3, 2^-133
  std::string path = folder_.file("w.safetensors");
  ASSERT_TRUE(write_safetensors(path, {{"f16", SafetensorsType::kF16, {3}, halves.data()},
                                       {"bf16", SafetensorsType::kBF16, {3}, brains.data()}})
                  .is_ok());
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.is_ok());
  std::vector<float> read(3);
  ASSERT_TRUE(file->read_f32(*file->find("f16"), 0, read).is_ok());
  EXPECT_EQ(read, (std::vector<float>{65504.0f, 0x1p-24f, -2.0f}));
  ASSERT_TRUE(file->read_f32(*file->find("bf16"), 0, read).is_ok());
  EXPECT_EQ(read, (std::vector<float>{1.0f, -3.0f, 0x1p-133f}));
}

TEST_F(SafetensorsFiles, widens_every_half_and_refuses_those_that_are_not_finite) {
  std::vector<Float16> halves;
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    if ((bits & 0x7c00u) != 0x7c00u) halves.push_back({static_cast<uint16_t>(bits)});
  }
  auto count = static_cast<int64_t>(halves.size());
  std::vector<uint16_t> bad = {0x7c00, 0xfc00, 0x7c01, 0xffff};
  std::string path = folder_.file("w.safetensors");
  std::vector<SafetensorsTensor> tensors = {{"all", SafetensorsType::kF16, {count}, halves.data()}};
  for (size_t i = 0; i < bad.size(); ++i) {
    tensors.push_back({std::to_string(i), SafetensorsType::kF16, {1}, &bad[i]});
  }
  ASSERT_TRUE(write_safetensors(path, tensors).is_ok());
  SafetensorsFile file = SafetensorsFile::open(path).value();
  std::vector<float> read(halves.size());
  ASSERT_TRUE(file.read_f32(*file.find("all"), 0, read).is_ok());
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(read[i]), std::bit_cast<uint32_t>(to_float(halves[i])))
        << halves[i].bits;
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    Status status = file.read_f32(*file.find(std::to_string(i)), 0, std::span(read).first(1));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << i;
  }
}

TEST_F(SafetensorsFiles, tensors_are_written_and_read_in_pieces) {
  constexpr int64_t kCount = 600'001;  // several pieces and a rest
  SafetensorsTensor tensor{"w", SafetensorsType::kF32, {kCount}};
  tensor.read_f32 = [](int64_t first, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(first) + static_cast<float>(i);
    return Status::ok();
  };
  std::string path = folder_.file("w.safetensors");
  ASSERT_TRUE(write_safetensors(path, {tensor}).is_ok());
  SafetensorsFile file = SafetensorsFile::open(path).value();
  std::vector<float> read(1000);
  for (int64_t first : {int64_t{0}, int64_t{261'999}, kCount - 1000}) {
    ASSERT_TRUE(file.read_f32(*file.find("w"), first, read).is_ok());
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(read[i], static_cast<float>(first + i));
  }
}

TEST_F(SafetensorsFiles, refuses_elements_that_are_not_finite_or_not_numbers) {
  std::vector<float> values = {1.0f, std::numeric_limits<float>::infinity()};
  std::vector<int32_t> integers = {1, 2};
  std::string path = folder_.file("w.safetensors");
  ASSERT_TRUE(write_safetensors(path, {{"f", SafetensorsType::kF32, {2}, values.data()},
                                       {"i", SafetensorsType::kI32, {2}, integers.data()}})
                  .is_ok());
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.is_ok());
  Status status = file->read_f32(*file->find("f"), 0, values);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("tensor 'f': an element is not finite"), std::string::npos);
  status = file->read_f32(*file->find("i"), 0, values);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("dtype is I32"), std::string::npos);
}

TEST_F(SafetensorsFiles, failed_writes_leave_the_old_file) {
  std::string path = folder_.file("w.safetensors");
  float value = 1;
  ASSERT_TRUE(write_safetensors(path, {{"a", SafetensorsType::kF32, {1}, &value}}).is_ok());
  std::string before = read_file(path).value();
  Status status = write_safetensors(
      path, {{"a", SafetensorsType::kF32, {1}, &value}, {"a", SafetensorsType::kF32, {1}, &value}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read_file(path).value(), before);
  // A folder cannot be replaced by a file.
  std::string taken = folder_.file("taken");
  ASSERT_TRUE(make_folders(taken + "/inside").is_ok());
  EXPECT_FALSE(write_safetensors(taken, {{"a", SafetensorsType::kF32, {1}, &value}}).is_ok());
  EXPECT_FALSE(write_safetensors(folder_.file("no/such/w"), {}).is_ok());
  for (const auto& found : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(found.path().string().find(".tmp"), std::string::npos) << found.path();
  }
}

TEST_F(SafetensorsFiles, names_a_file_that_does_not_exist) {
  Result<SafetensorsFile> file = SafetensorsFile::open(folder_.file("none"));
  ASSERT_FALSE(file.is_ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
}

}  // namespace

}  // namespace stagecoach
