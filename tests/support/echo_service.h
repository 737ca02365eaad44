#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "serving/model_service.h"

namespace cohort::testing {

struct EchoOptions {
  std::chrono::microseconds token_time{0};
  int64_t context_tokens = 4096;
  int32_t vocab_size = 300;
  bool silent = false;                  // takes requests and never produces a token
  std::optional<int64_t> fail_at = {};  // the token at which a row fails with `failure`,
  std::optional<int> fail_choice = {};  // if it is of this choice
  Error failure = Error(ErrorKind::kInternal, "bad block at 0x7f00 in /srv/model.gguf");
};

/// A model service without a model. A token is a byte; the answer repeats the prompt once and
/// ends, or, with temperature > 0, is letters drawn from seed and position. A logit bias of 100
/// forces its token. Each choice is a row, with letters of its own seed. The likeliest tokens are
/// the chosen one and those that follow it, each half as likely as the one before. One thread plays
/// the engine: it serves rows in turn, leaves full streams alone and drops cancelled ones.
class EchoService : public serving::ModelService {
 public:
  explicit EchoService(EchoOptions options = {});
  ~EchoService() override;

  serving::Health health() const override { return health_; }
  const serving::ModelInfo& info() const override { return info_; }
  std::vector<int32_t> render(const prompt::Conversation& conversation) const override;
  std::vector<int32_t> tokenize(std::string_view text) const override;
  serving::TokenText token_text(int32_t id) const override;
  std::shared_ptr<engine::Stream> submit(engine::Request request) override;
  const engine::EngineStats& stats() const override { return stats_; }
  const std::vector<kv::SchemeSummary>& kv_schemes() const override { return kv_schemes_; }

  void set_health(serving::Health health) { health_ = health; }
  size_t running() const { return stats_.rows; }
  size_t cancelled() const {
    return stats_.ended[static_cast<size_t>(engine::FinishReason::kCancelled)];
  }
  size_t tokens_made() const { return stats_.generated_tokens; }
  /// The last request that was submitted, without its trace.
  engine::Request last_request() const;

 private:
  struct Row;
  void run();
  bool step(Row& row);
  int32_t next_token(const Row& row) const;
  engine::ScoredToken score(int32_t token, int top) const;

  const EchoOptions options_;
  serving::ModelInfo info_;
  engine::EngineStats stats_;
  const std::vector<kv::SchemeSummary> kv_schemes_ = {};
  std::atomic<serving::Health> health_ = serving::Health::kReady;
  std::atomic<uint64_t> fresh_seed_ = 1000;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<std::unique_ptr<Row>> inbox_;
  engine::Request last_request_;
  bool poked_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace cohort::testing
