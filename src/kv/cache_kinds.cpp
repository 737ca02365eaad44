#include "kv/cache_kinds.h"

#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "kv/recurrent_cache.h"

namespace cohort::kv {
namespace {

using enum kernels::cpu::KvKind;
using kernels::cpu::KvKind;

/// Bounds what a hostile header can make a reader allocate before it meets the tensors.
constexpr int64_t kMostTokens = 1 << 24;

const AttentionCache* as_attention(const LayerCache& cache) {
  return dynamic_cast<const AttentionCache*>(&cache);
}
bool attention(const LayerCache& cache) {
  return as_attention(cache) != nullptr;
}
bool recurrent(const LayerCache& cache) {
  return dynamic_cast<const RecurrentCache*>(&cache) != nullptr;
}
/// Attention with or without a window that stores its tokens as `then`, from the start.
template <KvKind then, bool window>
bool fixed(const LayerCache& cache) {
  const AttentionCache* a = as_attention(cache);
  return a != nullptr && (a->spec().window > 0) == window && !a->precision().changes() &&
         a->precision().then.kind == then;
}
/// The same, dense until the precision changes.
template <KvKind then, bool window>
bool delayed(const LayerCache& cache) {
  const AttentionCache* a = as_attention(cache);
  return a != nullptr && (a->spec().window > 0) == window && a->precision().changes() &&
         a->precision().first.kind == kDense && a->precision().then.kind == then;
}

constexpr CacheKind kKinds[] = {
    {"kv", kPortable, fixed<kDense, false>, dense_codec, nullptr},
    {"rotating", kPortable, fixed<kDense, true>, dense_codec, nullptr},
    {"qkv", kPortable, fixed<kAffine, false>, affine_codec, nullptr},
    {"rotating-qkv", kPortable, fixed<kAffine, true>, affine_codec, nullptr},
    {"turboquant", kPortable, fixed<kTurbo, false>, turboquant_codec, nullptr},
    {"delayed-qkv", kPortable, delayed<kAffine, false>, affine_codec, dense_codec},
    {"delayed-rotating-qkv", kPortable, delayed<kAffine, true>, affine_codec, dense_codec},
    {"delayed-turboquant", kPortable, delayed<kTurbo, false>, turboquant_codec, dense_codec},
    {"paged", kPaged, attention, paged_codec, nullptr},
    {"ssm", kPortable | kPaged, recurrent, recurrent_codec, nullptr},
};

const CacheCodec& codec_of(const CacheKind& kind, CacheState state) {
  return kind.codec_before != nullptr && !state.converted ? kind.codec_before() : kind.codec();
}

CacheState state_of(const LayerCache& cache) {
  const AttentionCache* a = as_attention(cache);
  return {cache.offset(), a != nullptr && a->converted()};
}

int64_t least_reusable(const LayerCache& cache, CacheState state) {
  const AttentionCache* a = as_attention(cache);
  return a != nullptr ? a->minimum_reusable_offset(state.converted) : 0;
}

/// What a cache like this one is saved as in that state. "tensors" of the header is left out.
CacheLayout layout_of(const CacheKind& kind, const LayerCache& cache, CacheState state) {
  CacheLayout layout;
  layout.header["kind"] = kind.name;
  layout.header["signature"] = cache.signature();
  layout.header["offset"] = state.offset;
  layout.header["minimumReusableOffset"] = least_reusable(cache, state);
  codec_of(kind, state).describe(cache, state, layout);
  return layout;
}

std::string text_of(const boost::json::value* value) {
  return value != nullptr ? printable(boost::json::serialize(*value)) : "missing";
}

/// A header that is held against the cache that is to take it.
struct HeaderCheck {
  const boost::json::object& header;
  const LayerCache& cache;
  std::string_view what;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kInvalidRequest, "{}: {}", what,
         fmt::format(format, std::forward<Args>(args)...));
  }

  void expect_field(std::string_view key, const boost::json::value& expected) const {
    const boost::json::value* found = header.if_contains(key);
    if (found != nullptr && *found == expected) return;
    refuse("\"{}\" is {}, where this cache has {}", key, text_of(found), text_of(&expected));
  }

  const CacheKind& kind() const {
    const boost::json::value* name = header.if_contains("kind");
    for (const CacheKind& kind : kKinds) {
      if (name == nullptr || !name->is_string() || name->get_string() != kind.name) continue;
      if (!kind.matches(cache)) refuse("kind {} is not that of {}", kind.name, cache.signature());
      return kind;
    }
    refuse("there is no kind {}", text_of(name));
  }

  CacheState state() const {
    const boost::json::value* offset = header.if_contains("offset");
    if (offset == nullptr || !offset->is_int64() || offset->get_int64() < 0 ||
        offset->get_int64() > kMostTokens) {
      refuse("\"offset\" is {}, not a whole number up to {}", text_of(offset), kMostTokens);
    }
    const boost::json::value* converted = header.if_contains("converted");
    const CacheState state{offset->get_int64(),
                           converted != nullptr && converted->is_bool() && converted->get_bool()};
    const AttentionCache* a = as_attention(cache);
    if (a != nullptr && a->precision().changes() && !state.converted &&
        state.offset > a->precision().start) {
      refuse("{} tokens are not converted, which was due at {}", state.offset,
             a->precision().start);
    }
    return state;
  }

  void expect_fields(const boost::json::object& expected) const {
    for (const auto& field : expected) expect_field(field.key(), field.value());
    for (const auto& field : header) {
      if (field.key() == "tensors" || expected.contains(field.key())) continue;
      refuse("the field {} is not of this kind", printable(field.key()));
    }
  }

  void expect_tensors(const std::vector<TensorSpec>& expected,
                      std::span<const TensorSpec> all) const {
    const boost::json::value* slots = header.if_contains("tensors");
    if (slots == nullptr || !slots->is_array() || slots->get_array().size() != expected.size()) {
      refuse("\"tensors\" is {}, not {} slots", text_of(slots), expected.size());
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const boost::json::value& slot = slots->get_array()[i];
      if (!slot.is_int64() || slot.get_int64() < 0 ||
          static_cast<uint64_t>(slot.get_int64()) >= all.size()) {
        refuse("{} is in slot {} of {}", expected[i].name, text_of(&slot), all.size());
      }
      const TensorSpec& tensor = all[static_cast<size_t>(slot.get_int64())];
      if (tensor != expected[i]) {
        refuse("tensor {}, where this cache has {}", words(tensor), words(expected[i]));
      }
    }
  }
};

}  // namespace

std::span<const CacheKind> cache_kinds() {
  return kKinds;
}

const CacheKind& kind_of(const LayerCache& cache, CacheForm form) {
  for (const CacheKind& kind : kKinds) {
    if ((kind.forms & form) != 0 && kind.matches(cache)) return kind;
  }
  fail(ErrorKind::kUnsupported, "a cache {} cannot be saved", cache.signature());
}

SavedCache::SavedCache(const LayerCache& cache, CacheForm form)
    : cache_(cache),
      codec_(codec_of(kind_of(cache, form), state_of(cache))),
      layout_(layout_of(kind_of(cache, form), cache, state_of(cache))) {}

boost::json::object SavedCache::header(size_t first_slot) const {
  boost::json::object header = layout_.header;
  boost::json::array slots;
  for (size_t i = 0; i < layout_.tensors.size(); ++i) {
    slots.push_back(static_cast<int64_t>(first_slot + i));
  }
  header["tensors"] = std::move(slots);
  return header;
}

void SavedCache::write(size_t tensor, const Sink& sink) const {
  codec_.write(cache_, tensor, sink);
}

LoadedCache::LoadedCache(const boost::json::object& header, std::span<const TensorSpec> tensors,
                         LayerCache& cache, std::string_view what)
    : cache_(cache) {
  const HeaderCheck saved{header, cache, what};
  const CacheKind& kind = saved.kind();
  saved.expect_field("signature", boost::json::value(cache.signature()));
  state_ = saved.state();
  codec_ = &codec_of(kind, state_);
  layout_ = layout_of(kind, cache, state_);
  saved.expect_fields(layout_.header);
  saved.expect_tensors(layout_.tensors, tensors);
}

int64_t LoadedCache::minimum_reusable_offset() const {
  return least_reusable(cache_, state_);
}

void LoadedCache::read(size_t tensor, const Source& source) const {
  check(cache_.offset() == state_.offset, "only a restored cache is filled");
  codec_->read(cache_, tensor, source);
}

}  // namespace cohort::kv
