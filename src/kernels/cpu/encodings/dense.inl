// Dense keys and values: E is float, or uint16_t for bf16.

template <class E>
inline F load_element(const std::byte* p) {
  if constexpr (sizeof(E) == 4) {
    return load(reinterpret_cast<const float*>(p));
  } else {
    return load_bf16(p);
  }
}

template <class E>
struct DenseKeys {
  static constexpr int kBits = 8 * sizeof(E);
  static F read(const KvHead& head, int vector) {
    return load_element<E>(head.data + static_cast<ptrdiff_t>(vector) * 16 * sizeof(E));
  }
};

template <class E>
struct DenseValues {
  static constexpr int kBits = 8 * sizeof(E);
  static F read(const std::byte* row, int part) {
    return load_element<E>(row + static_cast<ptrdiff_t>(part) * 16 * sizeof(E));
  }
};
