// The two starter models, whole, against what transformers computes from the dequantized weights
// (goldens/real_*): template text and ids, logits, greedy ids, chunking, and the engine.
// The models are downloaded once into the cache that `cohort pull` uses.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "app/loading.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "kv/scheme.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "serving/model_binding.h"
#include "serving/text_parts.h"

namespace cohort {
namespace {

namespace json = boost::json;
namespace mx = mlx::core;

constexpr float kLogitTolerance = 2e-2f;   // of the goldens' README, as the margin
constexpr float kCertainMargin = 0.05f;    // a smaller one may go either way
constexpr size_t kExactGreedySteps = 64;   // as many as are recorded
constexpr size_t kEngineGreedySteps = 24;  // of the default arithmetic

struct RealModel {
  const char* alias;
  const char* golden;
};

void PrintTo(const RealModel& model, std::ostream* out) {
  *out << model.alias;
}

Settings settings_of(const RealModel& model) {
  return load_settings({.flags = {{"model", {model.alias}}}, .environment = process_environment()});
}

json::object read_golden(const RealModel& model) {
  const std::string path = std::string(COHORT_GOLDENS) + "/" + model.golden + "/golden.json";
  const MappedFile file(path);
  return parse_json_object(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

template <class T>
std::vector<T> list(const json::value& value) {
  return json::value_to<std::vector<T>>(value);
}

/// How many greedy ids must agree.
size_t certain_steps(const json::object& prompt, size_t limit) {
  const auto margins = list<float>(prompt.at("greedy_margins"));
  const auto doubtful =
      std::find_if(margins.begin(), margins.end(), [](float m) { return m < kCertainMargin; });
  return std::min(static_cast<size_t>(doubtful - margins.begin()), limit);
}

std::vector<int32_t> head_of(const std::vector<int32_t>& ids, size_t count) {
  return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min(count, ids.size()))};
}

/// Feeds several rows in one pack, as the engine does, and keeps their last logits.
class Rows {
 public:
  Rows(model::Model& model, kernels::cpu::Cpu& cpu, std::vector<std::vector<int32_t>> prompts,
       bool exact)
      : model_(model), cpu_(cpu), ids_(std::move(prompts)) {
    const kv::RowPrecision precision = kv::resolve({.dense_bf16 = !exact}, memory_.layers());
    for (size_t i = 0; i < ids_.size(); ++i) caches_.push_back(memory_.new_row(precision));
  }

  /// One forward over what each row has not fed yet, at most `chunk` tokens of each; returns the
  /// logits of each row's last fed token.
  std::vector<std::vector<float>> feed(size_t chunk = SIZE_MAX) {
    std::vector<model::TokenGroup> groups;
    std::vector<int32_t> last;
    int32_t packed = -1;
    for (size_t i = 0; i < ids_.size(); ++i) {
      const auto rest = std::span(ids_[i]).subspan(static_cast<size_t>(caches_[i].offset()));
      groups.push_back({rest.first(std::min(chunk, rest.size())), caches_[i]});
      last.push_back(packed += static_cast<int32_t>(groups.back().ids.size()));
    }
    mx::array y = model_.project(model_.forward(groups, nullptr), last);
    y.eval();
    std::vector<std::vector<float>> logits;
    const auto vocab = static_cast<size_t>(model_.shape().vocab_size);
    for (size_t i = 0; i < ids_.size(); ++i) {
      groups[i].cache.commit(static_cast<int64_t>(groups[i].ids.size()));
      const float* row = y.data<float>() + i * vocab;
      logits.emplace_back(row, row + vocab);
    }
    return logits;
  }

  bool all_fed() const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (caches_[i].offset() < static_cast<int64_t>(ids_[i].size())) return false;
    }
    return true;
  }

  /// `steps` greedy ids of each row. `logits` are those of the prompts' last tokens.
  std::vector<std::vector<int32_t>> greedy(std::vector<std::vector<float>> logits, size_t steps) {
    std::vector<std::vector<int32_t>> answers(ids_.size());
    for (size_t step = 0; step < steps; ++step) {
      if (step > 0) logits = feed();
      for (size_t i = 0; i < ids_.size(); ++i) {
        const auto vocab = static_cast<int64_t>(logits[i].size());
        const auto id = static_cast<int32_t>(cpu_.kernels().argmax(logits[i].data(), vocab));
        answers[i].push_back(id);
        ids_[i].push_back(id);
      }
    }
    return answers;
  }

 private:
  model::Model& model_;
  kernels::cpu::Cpu& cpu_;
  kv::KvMemory memory_{model_.shape().layers};
  std::vector<std::vector<int32_t>> ids_;
  std::vector<kv::RowCache> caches_;
};

class RealModels : public testing::TestWithParam<RealModel> {
 protected:
  RealModels()
      : settings_(settings_of(GetParam())),
        local_(app::find_model(settings_)),
        golden_(read_golden(GetParam())) {
    for (const json::value& prompt : golden_.at("prompts").get_array()) {
      prompts_.push_back(prompt.get_object());
      ids_.push_back(list<int32_t>(prompts_.back().at("input_ids")));
    }
  }

  std::unique_ptr<model::Model> load(bool exact) {
    return model::load_model(model::Checkpoint::open(local_.path.string()), {.exact = exact}, cpu_);
  }

  Settings settings_;
  store::LocalModel local_;
  json::object golden_;
  std::vector<json::object> prompts_;
  std::vector<std::vector<int32_t>> ids_;
  kernels::cpu::Cpu cpu_{2};
};

TEST_P(RealModels, TemplateTextAndIdsOfEveryPrompt) {
  const auto checkpoint = model::Checkpoint::open(local_.path.string());
  const text::Tokenizer tokenizer = serving::load_tokenizer(checkpoint);
  const auto chat = serving::load_template(checkpoint, "");
  EXPECT_EQ(chat == nullptr, golden_.at("chat_template").is_null());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const std::string rendered(prompts_[i].at("rendered").get_string());
    EXPECT_EQ(tokenizer.encode(rendered, text::SpecialTokens::kParse), ids_[i]) << rendered;
    if (prompts_[i].at("messages").is_null()) {  // raw text
      const std::vector<int32_t> leading =
          serving::leading_tokens(checkpoint, tokenizer, tokenizer.vocab_size());
      EXPECT_EQ(leading, head_of(ids_[i], 1)) << rendered;
    }
    if (chat == nullptr || !prompts_[i].at("messages").is_array()) continue;
    const auto got = chat->render(tokenizer, json::serialize(prompts_[i].at("messages")), true, "");
    EXPECT_EQ(got.text, rendered);
    EXPECT_EQ(got.ids, ids_[i]) << rendered;
  }
  std::set<int32_t> ends;
  for (int32_t id : list<int32_t>(golden_.at("eos_token_ids"))) ends.insert(id);
  EXPECT_EQ(serving::end_tokens(checkpoint, tokenizer, tokenizer.vocab_size()), ends);
}

/// Every recorded value is met, and nothing that is not recorded is larger.
void expect_top_logits(const std::vector<float>& logits, const json::object& prompt) {
  const json::object& top = prompt.at("last_logits_top50").get_object();
  const auto ids = list<int32_t>(top.at("ids"));
  const auto values = list<float>(top.at("values"));
  std::vector<float> rest = logits;
  float worst = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<size_t>(ids[i]);
    ASSERT_LT(id, logits.size());
    worst = std::max(worst, std::abs(logits[id] - values[i]));
    rest[id] = -INFINITY;
  }
  EXPECT_LE(worst, kLogitTolerance);
  std::printf("  top 50 within %.1e\n", static_cast<double>(worst));
  EXPECT_LE(*std::max_element(rest.begin(), rest.end()), values.back() + kLogitTolerance);
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit));
  const auto want = prompt.at("last_logits_logsumexp").to_number<double>();
  EXPECT_NEAR(std::log(sum), want, kLogitTolerance);
}

TEST_P(RealModels, ExactLogitsAndGreedyIdsOfEveryPrompt) {
  // A GGUF file's embedding scale is not rounded to bfloat16, so the goldens' main results hold.
  const auto model = load(true);
  Rows rows(*model, cpu_, ids_, true);
  const auto logits = rows.feed();
  for (size_t i = 0; i < prompts_.size(); ++i) {
    SCOPED_TRACE(prompts_[i].at("rendered").get_string());
    expect_top_logits(logits[i], prompts_[i]);
  }
  const auto answers = rows.greedy(logits, kExactGreedySteps);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    SCOPED_TRACE(prompts_[i].at("rendered").get_string());
    const size_t certain = certain_steps(prompts_[i], kExactGreedySteps);
    EXPECT_GT(certain, 0u);
    EXPECT_EQ(head_of(answers[i], certain),
              head_of(list<int32_t>(prompts_[i].at("greedy_ids")), certain));
  }
}

TEST_P(RealModels, ChunksAndNeighboursChangeNoBit) {
  const auto model = load(false);
  Rows alone(*model, cpu_, {ids_.back()}, false);
  const auto whole = alone.feed();
  Rows chunked(*model, cpu_, {ids_.back()}, false);
  std::vector<std::vector<float>> last;
  while (!chunked.all_fed()) last = chunked.feed(7);
  EXPECT_EQ(last, whole);
  Rows crowd(*model, cpu_, ids_, false);
  EXPECT_EQ(crowd.feed().back(), whole.front());
}

/// The ids that the engine answers `prompt` with.
std::shared_ptr<engine::Stream> ask(serving::ModelBinding& binding, std::vector<int32_t> prompt) {
  engine::Request request{.prompt = std::move(prompt), .max_tokens = kEngineGreedySteps};
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return binding.submit(std::move(request));
}

std::vector<int32_t> ids_of(engine::Stream& stream) {
  std::vector<int32_t> ids;
  for (;;) {
    for (const engine::TokenEvent& event : stream.wait()) {
      ids.insert(ids.end(), event.ids.begin(), event.ids.end());
      if (event.error) throw *event.error;
      if (event.finish) return ids;
    }
  }
}

TEST_P(RealModels, TheEngineGivesTheIdsOfTheDirectLoop) {
  std::vector<std::vector<int32_t>> want;
  {
    const auto model = load(false);
    Rows rows(*model, cpu_, ids_, false);
    auto logits = rows.feed();
    want = rows.greedy(std::move(logits), kEngineGreedySteps);
  }
  Settings settings = settings_;
  settings.threads = 2;
  settings.prefill_chunk_tokens = 13;
  serving::ModelBinding binding(app::binding_options(settings, local_));
  std::vector<std::shared_ptr<engine::Stream>> streams;
  for (const auto& prompt : ids_) streams.push_back(ask(binding, prompt));
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(ids_of(*streams[i]), want[i]) << prompts_[i].at("rendered").get_string();
  }
}

INSTANTIATE_TEST_SUITE_P(Gguf, RealModels,
                         testing::Values(RealModel{"smollm2", "real_smollm2"},
                                         RealModel{"gemma3-270m", "real_gemma3_270m"}),
                         [](const auto& instance) {
                           std::string name = instance.param.golden;
                           return name.substr(name.find('_') + 1);
                         });

}  // namespace
}  // namespace cohort
