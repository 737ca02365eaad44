// Plans against tests/schedules/*.txt (format: its README.md) and against what must hold of any.

#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "base/error.h"

namespace cohort::engine {
namespace {

/// What becomes of a row when its group was in a forward.
void carry_out(const PlannedGroup& group, RowState& row) {
  row.pending = group.samples ? 1 : row.pending - group.tokens;
  if (row.most == INT64_MAX) return;
  row.most -= group.tokens;
  if (row.most == 0) row.most = INT64_MAX;  // its precision has changed
}

/// One schedule file: rows that change line by line, and the plans that must come out.
class Schedule {
 public:
  explicit Schedule(const std::filesystem::path& path) : file_(path) {}

  /// Runs all lines; returns how many plans were compared.
  int run() {
    std::string line;
    for (number_ = 1; std::getline(file_, line); ++number_) {
      SCOPED_TRACE("line " + std::to_string(number_) + ": " + line);
      std::istringstream words(line.substr(0, line.find('#')));
      std::string command;
      if (words >> command) apply(command, words);
    }
    return plans_;
  }

 private:
  void apply(const std::string& command, std::istringstream& words) {
    if (command == "limits") {
      words >> limits_.prefill_tokens >> limits_.mixed_tokens;
    } else if (command == "row") {
      RowState row{row_id(words), 0, false};
      words >> row.pending;
      rows_.push_back(row);
    } else if (command == "block" || command == "unblock") {
      find(row_id(words)).blocked = command == "block";
    } else if (command == "change") {
      RowState& row = find(row_id(words));
      words >> row.most;
    } else if (command == "end") {
      const RowId id = row_id(words);
      std::erase_if(rows_, [&](const RowState& row) { return row.id == id; });
    } else if (command == "plan") {
      expect_plan(words);
    } else {
      ADD_FAILURE() << "unknown command";
    }
    EXPECT_FALSE(command != "plan" && words.fail()) << "a number is missing";
  }

  void expect_plan(std::istringstream& words) {
    std::string wanted, word;
    while (words >> word) wanted += (wanted.empty() ? "" : " ") + word;
    const Plan plan = plan_iteration(rows_, limits_);
    EXPECT_EQ(to_string(plan), wanted == "nothing" ? "" : wanted);
    EXPECT_EQ(plan.empty(), wanted == "nothing");
    ++plans_;
    for (const PlannedGroup& group : plan.groups) carry_out(group, find(group.id));
  }

  static RowId row_id(std::istringstream& words) {
    uint64_t number = 0;
    words >> number;
    return RowId{number};
  }

  RowState& find(RowId id) {
    const auto row = std::ranges::find(rows_, id, &RowState::id);
    if (row == rows_.end()) throw Error(ErrorKind::kInternal, "the schedule has no such row");
    return *row;
  }

  std::ifstream file_;
  int number_ = 0;
  int plans_ = 0;
  SchedulerLimits limits_;
  std::vector<RowState> rows_;
};

TEST(Scheduler, EveryScheduleFileComesOutAsWritten) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(COHORT_SCHEDULES)) {
    if (entry.path().extension() != ".txt") continue;
    SCOPED_TRACE(entry.path().filename().string());
    EXPECT_GT(Schedule(entry.path()).run(), 0);
    ++files;
  }
  EXPECT_GE(files, 15);
}

/// From [low, low + count).
int64_t draw(std::mt19937& random, int64_t low, uint32_t count) {
  return low + static_cast<int64_t>(random() % count);
}

std::vector<RowState> random_rows(std::mt19937& random) {
  std::vector<RowState> rows(random() % 20);
  const bool mostly_decoding = random() % 2 == 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint32_t longest = random() % 3 == 0 ? 5000 : 5;
    const bool decodes = mostly_decoding && random() % 4 != 0;
    rows[i] = {RowId{100 + i}, decodes ? 1 : draw(random, 1, longest), random() % 4 == 0};
    if (random() % 3 == 0) rows[i].most = draw(random, 1, longest);
  }
  return rows;
}

/// Where the group of this row stands in the plan, or -1.
ptrdiff_t place(const Plan& plan, RowId id) {
  const auto at = std::ranges::find(plan.groups, id, &PlannedGroup::id);
  return at == plan.groups.end() ? -1 : at - plan.groups.begin();
}

void expect_sound(const std::vector<RowState>& rows, const SchedulerLimits& limits) {
  const Plan plan = plan_iteration(rows, limits);
  const bool mixed = std::ranges::any_of(
      rows, [](const RowState& row) { return row.pending == 1 && !row.blocked; });
  int64_t prefilling = 0, prefilled = 0;
  ptrdiff_t last_decode = -1, last_prefill = -1;
  size_t planned = 0;
  for (const RowState& row : rows) {
    const ptrdiff_t at = place(plan, row.id);
    ASSERT_EQ(at < 0, row.pending == 1 && row.blocked) << "a row that can move is in the plan";
    if (at < 0) continue;
    ++planned;
    const PlannedGroup& group = plan.groups[static_cast<size_t>(at)];
    ASSERT_GE(group.tokens, 1);
    ASSERT_LE(group.tokens, row.pending);
    ASSERT_LE(group.tokens, row.most) << "no append passes a change of precision";
    ASSERT_EQ(group.samples, group.tokens == row.pending);
    ASSERT_FALSE(group.samples && row.blocked) << "a blocked row makes no token";
    ptrdiff_t& last = row.pending == 1 ? last_decode : last_prefill;
    ASSERT_GT(at, last) << "order of arrival";
    last = at;
    if (row.pending > 1) {
      ++prefilling;
      prefilled += group.tokens;
    }
  }
  ASSERT_EQ(planned, plan.groups.size()) << "no row is in the plan twice";
  if (last_decode >= 0 && prefilling > 0) {
    ASSERT_EQ(last_decode + 1, static_cast<ptrdiff_t>(plan.groups.size()) - prefilling);
  }
  ASSERT_LE(prefilled, std::max(mixed ? limits.mixed_tokens : limits.prefill_tokens, prefilling));
}

TEST(Scheduler, AnyStateKeepsBudgetOrderAndProgress) {
  std::mt19937 random(20);
  for (int round = 0; round < 20000; ++round) {
    const SchedulerLimits limits{draw(random, 1, 3000), draw(random, 1, 300)};
    const std::vector<RowState> rows = random_rows(random);
    expect_sound(rows, limits);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(Scheduler, AnyCrowdOfPromptsIsDoneInBoundedIterations) {
  std::mt19937 random(21);
  for (int round = 0; round < 200; ++round) {
    std::vector<RowState> rows;
    int64_t total = 0;
    for (size_t i = 0; i < 1 + random() % 10; ++i) {
      rows.push_back({RowId{i}, draw(random, 2, 1000), false});
      if (random() % 3 == 0) rows.back().most = draw(random, 1, 1000);
      total += rows.back().pending;
    }
    const SchedulerLimits limits{64, 16};
    // Each iteration prefills at least the mixed budget, or all that is left of some rows, or
    // brings some to their changes of precision.
    int64_t iterations_left = total / limits.mixed_tokens + static_cast<int64_t>(rows.size()) * 64;
    std::set<RowId> waiting;
    for (const RowState& row : rows) waiting.insert(row.id);
    while (!waiting.empty()) {
      ASSERT_GT(--iterations_left, 0) << "round " << round;
      for (const PlannedGroup& group : plan_iteration(rows, limits).groups) {
        RowState& row = *std::ranges::find(rows, group.id, &RowState::id);
        carry_out(group, row);
        if (group.samples) waiting.erase(group.id);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::engine
