#include "tools/bandwidth/profile_text.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "tests/core/json_schema.h"
#include "tests/core/temporary_folder.h"
#include "tools/bandwidth/profile_csv.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// Something of everything.
MachineProfile rich_profile() {
  MachineProfile profile;
  profile.name = "box, \"the\" one";
  profile.notes = {"a note"};
  for (int index = 0; index < 2; ++index) {
    MachineCard& card = profile.cards.emplace_back();
    card.name = "card";
    card.device = index == 0 ? "cuda:0" : "cuda:1";
    card.flop_per_s = 1e14;
    card.memory_bytes = 24 * kGiB;
    card.up_bytes_per_s = 25e9;
    card.down_bytes_per_s = 26e9;
    card.duplex_bytes_per_s = 40e9;
    card.bulk.up = MeasuredLane{BulkMethod::kOneInFlight, 4 * kMiB, 0, 0.0004};
    card.bulk.down = MeasuredLane{BulkMethod::kAlternating, 2 * kMiB, 8, 0};
    card.uplink = 0;
  }
  profile.uplinks.push_back({"switch", 30, 31});
  profile.peers.push_back({0, 1, true, "", 10e9, 12e9});
  profile.peers.push_back({1, 0, false, "wrong bytes arrived", 0, 12e9});
  MachineOps& ops = profile.ops.emplace_back();
  ops.card = "card";
  ops.rates.add({{OpKind::kMatmul, DType::kBF16, "nt", {8, 16, 32, 1}, 8192}, 2500});
  profile.host_memory_bytes_per_s = 150e9;
  profile.host_work_bytes_per_s = 80e9;
  profile.host_work_threads = 12;
  profile.latency_ns = 1e4;
  profile.measurement = MachineMeasurement{
      "2026-11-30T17:05:00Z", "stagecoach 0.1.0", "full", {{{"processor", "some"}}}};
  return profile;
}

TEST(ProfileText, TablesShowEverything) {
  MachineProfile profile = rich_profile();
  std::string table = profile_table(profile);
  for (const char* part :
       {"measured 2026-11-30T17:05:00Z by stagecoach 0.1.0, full", "processor",
        "cuda:1: card, 24.0", "25 GB/s", "26 GB/s", "40 GB/s", "100 TFLOP/s",
        "one in flight, chunks of 4M, any number", "0.4 ms", "alternating, chunks of 2M, 8 ahead",
        "30 GB/s up, 31 down: cuda:0 + cuda:1", "directly 10 GB/s; through the host 12 GB/s",
        "does not work (wrong bytes arrived)", "80 GB/s with 12 threads", "timed operations",
        "1; 'profile export'", "150 GB/s for copies", "10 us", "a note"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  EXPECT_THAT(table, Not(HasSubstr("assumed")));
  EXPECT_THAT(assumptions_of(profile), IsEmpty());
  Json json = profile_json(profile);
  EXPECT_EQ(JsonSchema::read("machine_profile.schema.json").violation(*json.find("profile")), "");
  EXPECT_TRUE(json.find("is_measured")->as_bool());
}

TEST(ProfileText, WhatIsMissingIsSaidToBeAssumed) {
  MachineProfile profile = rich_profile();
  profile.cards[1].bulk.up.reset();
  profile.uplinks.clear();
  profile.cards[0].uplink = profile.cards[1].uplink = -1;
  profile.peers.pop_back();
  profile.host_memory_bytes_per_s = profile.host_work_threads = 0;
  profile.latency_ns = 0;
  profile.ops.clear();
  profile.measurement.reset();
  std::string table = profile_table(profile);
  for (const char* part : {"written by hand", "assumed, since it was not measured",
                           "cuda:1: chunks of bulk copies up follow", "cards share no link",
                           "copies between cards were not measured: cuda:1 to cuda:0",
                           "updates take all threads", "memory limits nothing", "no latency"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  EXPECT_EQ(profile_json(profile).find("assumed")->items().size(), 7u);
}

TEST(ProfileText, TheColumnsOfTheCsvAreThoseOfItsVersion) {
  std::string csv = profile_csv(rich_profile());
  EXPECT_THAT(csv, StartsWith("entry,subject,quantity,unit,value\nprofile,,schema_version,,1\n"));
  for (const char* row :
       {"profile,,name,,\"box, \"\"the\"\" one\"\n", "measurement,,machine.processor,,some\n",
        "cards[0],cuda:0,up_bytes_per_s,B/s,25000000000.0\n",
        "cards[1],cuda:1,bulk_down.chunk_bytes,B,2097152\n",
        "uplinks[0],cuda:0 cuda:1,down_bytes_per_s,B/s,31000000000.0\n",
        "peers[0],cuda:0 cuda:1,direct_bytes_per_s,B/s,10000000000.0\n",
        "peers[1],cuda:1 cuda:0,reason,,wrong bytes arrived\n", "host,,work_threads,,12\n",
        "ops[0],card,matmul bf16 nt 8x16x32x1.us,us,2.5\n", "profile,,copy_latency_s,s,1e-05\n",
        "note,,text,,a note\n"}) {
    EXPECT_THAT(csv, HasSubstr(row));
  }
  MachineProfile by_hand;
  by_hand.cards.resize(1);
  EXPECT_THAT(profile_csv(by_hand), HasSubstr("cards[0],0,up_bytes_per_s,B/s,0.0\n"));
}

// Cut anywhere, or with letters that are others: a refusal with the file's name, or a profile that
// can be shown.
TEST(ProfileText, DamagedProfilesAreRefusedOrShown) {
  TemporaryFolder folder;
  std::string path = folder.file("here.json");
  const std::string whole = to_json(rich_profile()).dump(true);
  auto expect_answer = [&](const std::string& text) {
    std::ofstream(path) << text;
    Result<MachineProfile> profile = read_machine_profile(path);
    if (profile.is_ok()) {
      EXPECT_FALSE(profile_table(*profile).empty() || profile_csv(*profile).empty());
      EXPECT_TRUE(profile_json(*profile).is_object());
    } else {
      EXPECT_THAT(profile.status().message(), HasSubstr(path));
    }
    return profile.is_ok();
  };
  EXPECT_TRUE(expect_answer(whole));
  for (size_t size = 0; size < whole.size(); size += 37) {
    EXPECT_FALSE(expect_answer(whole.substr(0, size))) << size;
  }
  const std::string letters = "\"[]{},:0-9.eE+nulltrue";
  RandomKey key;
  for (uint64_t round = 0; round < 200; ++round) {
    std::string text = whole;
    text[random_word(key, 2 * round) % text.size()] =
        letters[random_word(key, 2 * round + 1) % letters.size()];
    expect_answer(text);
  }
}

}  // namespace
}  // namespace stagecoach
