#include "train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using testing::HasSubstr;

constexpr const char* kMinimal = "[model]\npath = \"m\"\n[data]\ntrain = [\"a.txt\"]\n";

Result<TrainConfig> read(const std::string& extra, const std::vector<std::string>& overrides = {}) {
  return parse_train_config(kMinimal + extra, overrides, "run.toml");
}

std::string refusal(const std::string& extra, const std::vector<std::string>& overrides = {}) {
  Result<TrainConfig> config = read(extra, overrides);
  return config.is_ok() ? "accepted" : config.status().message();
}

TEST(Config, OnlyModelAndDataAreNeeded) {
  Result<TrainConfig> config = read("");
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->model.path, "m");
  EXPECT_EQ(config->data.train, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(config->schedule.kind, "roundpipe");
  EXPECT_EQ(config->schedule.update, "overlap");
  EXPECT_EQ(config->train.micro_batches, 4);

  EXPECT_THAT(parse_train_config("", {}, "x.toml").status().message(),
              HasSubstr("x.toml: model.path is missing"));
  EXPECT_THAT(parse_train_config("[model]\npath=\"m\"", {}, "x.toml").status().message(),
              HasSubstr("x.toml: data.train is missing"));
}

constexpr const char* kEveryKey = R"(
[model]
path = "dir"
init = "random"
dtype = "bf16"
[data]
train = ["a.txt", "b.txt"]
validation = "v.txt"
sequence = 64
tokenizer = "bytes"
seed = 7
[train]
iterations = 11
epochs = 2
batch = 24
microbatches = 6
rounds = 3
seed = 8
eval_every = 5
eval_tokens = "2K"
log_every = 3
deterministic = true
z_loss = 1e-4
router_loss = 0.02
label_smoothing = 0.1
[optimizer]
kind = "adamw"
lr = 1e-3
betas = [0.8, 0.99]
eps = 1e-7
weight_decay = 0
no_decay = "norms and biases"
clip_norm = 0
warmup = 4
decay = "linear"
min_lr = 0.25
[schedule]
kind = "single"
update = "barrier"
dispatch = "static"
max_stage_layers = 2
[devices]
use = "cpu:2[memory=64M,speed=1,0.5]"
memory = "32M"
timeout = "1500ms"
[activations]
policy = "recompute"
[output]
dir = "o"
save_every = 9
keep_last = 3
trace = false
resume = "never"
)";

TEST(Config, ReadsEveryKey) {
  Result<TrainConfig> config = parse_train_config(kEveryKey, {}, "run.toml");
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->model.init, "random");
  EXPECT_EQ(config->model.dtype, DType::kBF16);
  EXPECT_EQ(config->data.validation, std::vector<std::string>{"v.txt"});
  EXPECT_EQ(config->data.seed, 7u);
  EXPECT_EQ(config->train.micro_batches, 6);
  EXPECT_EQ(config->train.rounds, 3);
  EXPECT_EQ(config->train.eval_tokens, 2048);
  EXPECT_EQ(config->train.deterministic, "true");
  EXPECT_EQ(config->train.z_loss, 1e-4);
  EXPECT_EQ(config->train.router_loss, 0.02);
  EXPECT_EQ(config->train.label_smoothing, 0.1);
  EXPECT_EQ(config->optimizer.beta2, 0.99);
  EXPECT_EQ(config->optimizer.weight_decay, 0.0);
  EXPECT_EQ(config->optimizer.min_lr, 0.25);
  EXPECT_EQ(config->schedule.dispatch, "static");
  EXPECT_EQ(config->devices.timeout_ns, 1'500'000'000);
  EXPECT_EQ(config->output.keep_last, 3);
  EXPECT_FALSE(config->output.trace);

  // What is printed reads back to the same, key by key.
  std::string text = train_config_to_toml(*config);
  Result<TrainConfig> again = parse_train_config(text, {}, "printed");
  ASSERT_TRUE(again.is_ok()) << again.status().to_string() << "\n" << text;
  EXPECT_EQ(train_config_to_toml(*again), text);
  EXPECT_EQ(train_config_to_json(*again).dump(), train_config_to_json(*config).dump());
  Result<Json> as_toml = parse_toml(text, "printed");
  EXPECT_EQ(as_toml->dump(), train_config_to_json(*config).dump());
}

TEST(Config, PrintedTextSurvivesAwkwardNames) {
  Result<TrainConfig> config =
      read("[output]\ndir = \"a \\\"b\\\" \\\\ \\u007f \\u0001 \u00e4\"\n");
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  Result<TrainConfig> again = parse_train_config(train_config_to_toml(*config), {}, "printed");
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(again->output.dir, config->output.dir);
}

TEST(Config, RefusesUnknownKeysWithTheNearest) {
  EXPECT_EQ(refusal("[train]\nbatches = 3\n"),
            "run.toml: line 6: unknown key 'train.batches'; did you mean 'train.batch'?");
  EXPECT_EQ(refusal("[train]\nmicro_batches = 3\n"),
            "run.toml: line 6: unknown key 'train.micro_batches'; did you mean "
            "'train.microbatches'?");
  EXPECT_EQ(refusal("[train]\nlr = 3\n"),
            "run.toml: line 6: unknown key 'train.lr'; did you mean 'optimizer.lr'?");
  EXPECT_EQ(refusal("[optimiser]\nlr = 3\n"),
            "run.toml: line 5: unknown section [optimiser]; did you mean [optimizer]?");
  EXPECT_THAT(refusal("[output]\nxyzzyquux = 3\n"),
              HasSubstr("[output] knows dir, save_every, keep_last, save_copy, trace, resume"));
  EXPECT_THAT(refusal("", {"train.batchs=4"}),
              HasSubstr("command line: unknown key 'train.batchs'; did you mean 'train.batch'?"));
}

TEST(Config, RefusalsNameKeyValueAllowedAndWhatToDo) {
  EXPECT_EQ(refusal("[train]\n# more\nbatch = 0\n"),
            "run.toml: line 7: train.batch = 0 is not allowed; allowed: a whole number from 1 to "
            "1048576; for example train.batch = 16");
  EXPECT_EQ(refusal("", {"train.batch=0"}),
            "command line: train.batch = 0 is not allowed; allowed: a whole number from 1 to "
            "1048576; for example train.batch = 16");
  const char* wrong[] = {"[train]\nbatch = 16.0\n",
                         "[train]\nbatch = \"16\"\n",
                         "[train]\nmicrobatches = -1\n",
                         "[train]\neval_tokens = \"many\"\n",
                         "[train]\ndeterministic = 1\n",
                         "[train]\nseed = -1\n",
                         "[train]\nz_loss = -1e-4\n",
                         "[train]\nz_loss = nan\n",
                         "[train]\nz_loss = 2\n",
                         "[train]\nrouter_loss = -0.1\n",
                         "[train]\nrouter_loss = 11\n",
                         "[train]\nrouter_loss = \"off\"\n",
                         "[train]\nlabel_smoothing = -0.1\n",
                         "[train]\nlabel_smoothing = 1\n",
                         "[train]\nlabel_smoothing = nan\n",
                         "[optimizer]\nlr = 0\n",
                         "[optimizer]\nlr = nan\n",
                         "[optimizer]\nlr = inf\n",
                         "[optimizer]\nbetas = [0.9]\n",
                         "[optimizer]\nbetas = [0.9, 1.0]\n",
                         "[optimizer]\neps = 0\n",
                         "[optimizer]\neps = 1e-300\n",
                         "[optimizer]\nmin_lr = 1.5\n",
                         "[devices]\ntimeout = \"soon\"\n",
                         "[devices]\ntimeout = 60\n",
                         "[devices]\nmemory = \"much\"\n",
                         "[output]\ntrace = \"yes\"\n",
                         "[output]\nkeep_last = 0\n",
                         "[output]\ndir = \"\"\n",
                         "[data]\nsequence = 0\n"};
  for (const char* text : wrong) {
    std::string extra = text;
    bool data = extra.starts_with("[data]");
    std::string message =
        data ? parse_train_config("[model]\npath=\"m\"\n[data]\ntrain=[\"a\"]\nsequence = 0\n", {},
                                  "run.toml")
                   .status()
                   .message()
             : refusal(extra);
    EXPECT_THAT(message, HasSubstr("run.toml: line")) << text;
    EXPECT_THAT(message, HasSubstr("is not allowed; allowed: ")) << text;
    EXPECT_THAT(message, HasSubstr("; for example ")) << text;
  }
}

TEST(Config, RefusesWhatThisVersionLacksByName) {
  struct Case {
    const char* text;
    const char* key;
  };
  const Case cases[] = {{"[schedule]\nkind = \"paci\"\n", "schedule.kind = \"paci\""},
                        {"[schedule]\nkind = \"slidedp\"\n", "schedule.kind = \"slidedp\""},
                        {"[schedule]\naccumulation = 4\n", "schedule.accumulation = 4"},
                        {"[activations]\npolicy = \"keep\"\n", "activations.policy = \"keep\""}};
  for (const Case& entry : cases) {
    Result<TrainConfig> config = read(entry.text);
    ASSERT_FALSE(config.is_ok()) << entry.text;
    EXPECT_EQ(config.status().code(), StatusCode::kUnimplemented) << entry.text;
    EXPECT_THAT(config.status().message(), HasSubstr(entry.key));
    EXPECT_THAT(config.status().message(), HasSubstr("this version does not have it yet"));
  }
  auto message = [](const char* text) {
    return make_train_config(*parse_toml(text, "t"), {}, "t").status().message();
  };
  EXPECT_THAT(message("[model]\ndtype = \"fp8\"\n"), HasSubstr("\"fp32\", \"bf16\", \"fp16\""));
  EXPECT_THAT(message("[data]\ntokenizer = \"\"\n"), HasSubstr("text that is not empty"));
  EXPECT_THAT(message("[data]\npacking = \"flat\"\n"),
              HasSubstr("\"auto\", \"stream\", \"pad\", \"documents\""));
  EXPECT_THAT(message("[data]\ntrain = [\"\"]\n"), HasSubstr("without a name"));
}

TEST(Config, AdaptersAreATableWhoseKeysMayComeOneByOne) {
  auto read_model = [](const std::string& lora, const std::vector<std::string>& overrides = {}) {
    std::string text = "[model]\npath = \"m\"\n" + lora + "\n[data]\ntrain = [\"t.txt\"]\n";
    return parse_train_config(text, overrides, "t");
  };
  Result<TrainConfig> config =
      read_model(R"(lora = {rank = 16, alpha = 32, targets = "all-linear"})");
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->model.lora.rank, 16);
  EXPECT_EQ(config->model.lora.alpha, 32);
  EXPECT_EQ(config->model.lora.targets, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(config->model.base, "memory");
  // What it prints reads back.
  config = read_model("base = \"mapped\"", {"model.lora.rank=8", "model.lora.rslora=true",
                                            R"(model.lora.targets=["v_proj", "q_proj"])"});
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->model.lora.alpha, 8);
  EXPECT_EQ(config->model.lora.targets, (std::vector<std::string>{"q_proj", "v_proj"}));
  std::string printed = train_config_to_toml(*config);
  EXPECT_THAT(printed,
              HasSubstr("lora = {rank = 8, alpha = 8.0, targets = [\"q_proj\",\"v_proj\"], "
                        "rslora = true}"));
  Result<TrainConfig> again = parse_train_config(printed, {}, "t");
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(train_config_to_toml(*again), printed);
  EXPECT_EQ(train_config_to_toml(*read_model("")).find("lora ="), std::string::npos);

  auto refusal_of = [&](const std::string& lora) { return read_model(lora).status().message(); };
  EXPECT_THAT(refusal_of("lora = 16"), HasSubstr("a table"));
  EXPECT_THAT(refusal_of("lora = {rnak = 16}"), HasSubstr("did you mean 'rank'"));
  // Of a table the key in it, not all of it.
  EXPECT_THAT(refusal_of("lora = {rank = 0, alpha = 7}"),
              HasSubstr(": model.lora.rank = 0 is not allowed; allowed: a whole number from 1"));
  EXPECT_THAT(refusal_of("lora = {rank = 4, alpha = nan}"),
              HasSubstr("model.lora.alpha = nan is not allowed"));
  EXPECT_THAT(refusal_of("lora = {rank = 4, alpha = 0}"), HasSubstr("above 0"));
  EXPECT_THAT(refusal_of("lora = {rank = 4, targets = []}"), HasSubstr("list of names"));
  for (const char* text : {"lora = {alpha = 4}", "lora = {}", "lora = {rslora = false}"}) {
    EXPECT_THAT(refusal_of(text), HasSubstr("model.lora.rank is missing")) << text;
  }
  EXPECT_THAT(refusal_of("lora = {rank = 4, path = \"a\"}"), HasSubstr("the adapter's own"));
  EXPECT_THAT(refusal_of("init = \"random\"\nlora = {rank = 4}"), HasSubstr("were trained"));
  EXPECT_THAT(refusal_of("base = \"disk\""), HasSubstr("\"memory\", \"mapped\""));
}

TEST(Config, TheListOfSchedulesIsClosed) {
  auto answer = [](const char* kind) {
    return refusal(std::string("[schedule]\nkind = \"") + kind + "\"\n");
  };
  for (const char* kind :
       {"single", "roundpipe", "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v"}) {
    EXPECT_EQ(answer(kind), "accepted") << kind;
  }
  for (const char* kind : {"paci", "pipedream", "pipedream-2bw", "slidedp"}) {
    EXPECT_THAT(answer(kind), HasSubstr("this version does not have it yet"));
  }
  for (const char* kind :
       {"mobius", "zb-h2", "zb-1p", "zb-2p", "v-half", "v-min", "dualpipe", "dualpipev"}) {
    EXPECT_THAT(answer(kind), HasSubstr("simulate only"));
  }
}

TEST(Config, ActivationsAreKeptWhereStagesAreBound) {
  const char* keep = "activations.policy = \"keep\"";
  EXPECT_THAT(refusal("", {"activations.policy=keep"}), HasSubstr(keep));
  EXPECT_EQ(refusal("", {"activations.policy=keep", "schedule.kind=1f1b"}), "accepted");
  EXPECT_EQ(refusal("", {"activations.policy=recompute", "schedule.kind=zb-v"}), "accepted");
}

TEST(Config, SchedulesThatOnlySimulateAndUnknownOnes) {
  EXPECT_THAT(refusal("[schedule]\nkind = \"dualpipe\"\n"), HasSubstr("simulate only"));
  EXPECT_THAT(refusal("[schedule]\nkind = \"roundpip\"\n"),
              HasSubstr("did you mean \"roundpipe\"?"));
  EXPECT_THAT(refusal("[optimizer]\nkind = \"adamv\"\n"), HasSubstr("did you mean \"adamw\"?"));
  EXPECT_THAT(refusal("[optimizer]\nmomentum = 1\n"), HasSubstr("from 0 and below 1"));
}

// Field report 80: the equation and the nearest valid values, instead of an assertion.
TEST(Config, BatchThatDoesNotDivideNamesTheEquationAndTheNearestValues) {
  EXPECT_EQ(refusal("[train]\nbatch = 10\nmicrobatches = 4\n"),
            "run.toml: train.batch = 10 does not divide by train.microbatches = 4: batch = "
            "microbatches x sequences of a micro-batch, 10 = 4 x 2.5; set train.batch = 8 or 12, "
            "or train.microbatches = 2 or 5");
  EXPECT_THAT(refusal("[train]\nbatch = 256\nmicrobatches = 7\n"),
              HasSubstr("set train.batch = 252 or 259, or train.microbatches = 4 or 8"));
  EXPECT_THAT(refusal("[train]\nbatch = 2\nmicrobatches = 4\n"),
              HasSubstr("set train.batch = 4, or train.microbatches = 2"));
  EXPECT_THAT(refusal("[train]\nbatch = 7\nmicrobatches = 2\n"),
              HasSubstr("train.microbatches = 1 or 7"));
  EXPECT_THAT(refusal("[train]\nbatch = 16\nmicrobatches = 4\nrounds = 3\n"),
              HasSubstr("microbatches = rounds x micro-batches of a round, 4 = 3 x 1.33; set "
                        "train.rounds = 2 or 4, or train.microbatches = 3 or 6"));
  EXPECT_EQ(refusal("[train]\nbatch = 12\nmicrobatches = 4\nrounds = 2\n"), "accepted");
}

TEST(Config, ValidationMustExistWhenAskedFor) {
  EXPECT_THAT(refusal("[train]\neval_every = 10\n"), HasSubstr("data.validation is empty"));
}

TEST(Config, OverridesWinAndNeedNoQuotes) {
  Result<TrainConfig> config =
      read("[train]\nbatch = 8\n",
           {"train.batch=32", "devices.use=cpu:2[memory=4M]", "output.dir=123", "train.batch = 64",
            "data.train=b.txt", "data.validation=[\"c.txt\", \"d.txt\"]", "train.eval_tokens=5",
            "train.deterministic=false", "optimizer.betas=[0.5,0.6]", "model.path='quoted'"});
  ASSERT_TRUE(config.is_ok()) << config.status().to_string();
  EXPECT_EQ(config->train.batch, 64);
  EXPECT_EQ(config->devices.use, "cpu:2[memory=4M]");
  EXPECT_EQ(config->output.dir, "123");
  EXPECT_EQ(config->data.train, std::vector<std::string>{"b.txt"});
  EXPECT_EQ(config->data.validation, (std::vector<std::string>{"c.txt", "d.txt"}));
  EXPECT_EQ(config->train.eval_tokens, 5);
  EXPECT_EQ(config->train.deterministic, "false");
  EXPECT_EQ(config->optimizer.beta1, 0.5);
  EXPECT_EQ(config->model.path, "quoted");

  EXPECT_THAT(refusal("", {"train.batch"}), HasSubstr("is not KEY=VALUE"));
  EXPECT_THAT(refusal("", {"train.batch=many"}), HasSubstr("the value 'many' is not TOML"));
  EXPECT_THAT(refusal("", {"train.batch=1\n[x]\ny=2"}), HasSubstr("command line"));
}

TEST(Config, RefusesSectionsThatAreNotAndBrokenSyntax) {
  EXPECT_THAT(parse_train_config("train = 3\n", {}, "run.toml").status().message(),
              HasSubstr("write [train] and its keys below"));
  EXPECT_THAT(parse_train_config("batch = 3\n", {}, "run.toml").status().message(),
              HasSubstr("unknown key 'batch'; did you mean 'train.batch'?"));
  EXPECT_THAT(refusal("[train\n"), HasSubstr("run.toml: line 5"));
  EXPECT_THAT(refusal("[devices]\nuse = \"cpu:4[memory=64M\"\n"),
              HasSubstr("run.toml: line 6: devices.use = "));
}

}  // namespace
}  // namespace stagecoach
