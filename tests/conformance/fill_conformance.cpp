#include "tests/conformance/conformance_test.h"

namespace stagecoach {
namespace {

class FillConformance : public ConformanceTest {
 protected:
  void expect_refused(Stream& stream, const FillRequest& request) {
    auto result = stream.fill(request);
    EXPECT_TRUE(has_code(result, StatusCode::kInvalidArgument));
    EXPECT_EQ(result.status().site().verb, "fill");
    EXPECT_EQ(result.status().site().label, request.label.view());
    EXPECT_TRUE(is_ok(stream.status()));
  }
};

// M5: patterns of 1, 2 and 4 bytes; only the low bytes of the pattern count.
TEST_P(FillConformance, M5_PatternsOfEverySize) {
  constexpr ByteCount kSize = 4096;
  auto stream = new_stream();
  BufferHandle memory = device_buffer(kSize);
  struct Case {
    int size;
    uint32_t word;
  };
  for (Case one : {Case{1, 0x44444444}, Case{2, 0x33443344}, Case{4, 0x11223344}}) {
    ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0xffffffff, 4, "poison"})));
    ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0x11223344, one.size, "pattern"})));
    ASSERT_TRUE(is_ok(stream->synchronize()));
    EXPECT_EQ(download_words(memory->view()), std::vector<uint32_t>(kSize / 4, one.word));
  }
}

// M5: a part; the rest stays.
TEST_P(FillConformance, M5_PartsLeaveTheRestAlone) {
  auto stream = new_stream();
  BufferHandle memory = device_buffer(16);
  ASSERT_TRUE(is_ok(stream->fill({memory->view(), 0xffffffff, 4, "poison"})));
  ASSERT_TRUE(is_ok(stream->fill({memory->slice(4, 8), 0, 4, "middle"})));
  ASSERT_TRUE(is_ok(stream->fill({memory->slice(3, 1), 0x77, 1, "odd byte"})));
  ASSERT_TRUE(is_ok(stream->synchronize()));
  EXPECT_EQ(download_words(memory->view()), (std::vector<uint32_t>{0x77ffffff, 0, 0, 0xffffffff}));
}

// M5, E1: sizes that are none, or do not divide the range.
TEST_P(FillConformance, E1_BadPatternsAreRefused) {
  auto stream = new_stream();
  BufferHandle memory = device_buffer(64);
  expect_refused(*stream, {memory->view(), 0, 3, "three"});
  expect_refused(*stream, {memory->view(), 0, 0, "zero"});
  expect_refused(*stream, {memory->view(), 0, 8, "eight"});
  expect_refused(*stream, {memory->slice(0, 6), 0, 4, "length"});
  expect_refused(*stream, {memory->slice(2, 4), 0, 4, "place"});
}

// M3, E1: memory that is not this device's.
TEST_P(FillConformance, M3_OtherMemoryIsRefused) {
  auto stream = new_stream();
  BufferHandle host = pinned_buffer(64);
  BufferHandle away = device_buffer(64, 1);
  expect_refused(*stream, {host->view(), 0, 4, "host"});
  expect_refused(*stream, {away->view(), 0, 4, "away"});
  expect_refused(*stream, {BufferView{}, 0, 4, "none"});
}

STAGECOACH_CONFORMANCE_SUITE(FillConformance);

}  // namespace
}  // namespace stagecoach
