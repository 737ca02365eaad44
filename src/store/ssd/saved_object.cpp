#include "store/ssd/saved_object.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "store/ssd/saved_prefix.h"

namespace cohort::store {
namespace {

namespace bj = boost::json;

std::vector<kv::TensorSpec> specs_of(const Object& object) {
  std::vector<kv::TensorSpec> specs;
  for (const ObjectTensor& tensor : object.tensors) specs.push_back(tensor.spec);
  return specs;
}

/// A field of what the record of an object says of it.
const bj::value& field(const kv::RecordHead& head, std::string_view name, bj::kind kind) {
  const bj::value* value = head.about().if_contains(name);
  if (value == nullptr || value->kind() != kind) {
    fail(ErrorKind::kInvalidRequest, "a file's {} is not that of an object", name);
  }
  return *value;
}

}  // namespace

ObjectWriter::ObjectWriter(std::string_view identity, std::string_view key, const Object& object)
    : object_(object),
      record_({{"about", bj::object{{"identity", identity},
                                    {"object", key},
                                    {"schema", object.schema},
                                    {"metadata", object.metadata}}}},
              specs_of(object)) {}

void ObjectWriter::write(const kv::Sink& sink) const {
  record_.write([&](size_t tensor, const kv::Sink& out) { out(object_.tensors[tensor].bytes); },
                sink);
}

bool holds_object(const kv::RecordHead& head) {
  return head.about().contains("object");
}

std::string key_of(const kv::RecordHead& head, std::string_view identity) {
  if (identity_of(head) != identity) {
    fail(ErrorKind::kUnsupported, "a file was written for something else");
  }
  field(head, "schema", bj::kind::string);
  field(head, "metadata", bj::kind::object);
  return std::string(field(head, "object", bj::kind::string).get_string());
}

Object read_object(kv::RecordReader& record) {
  const kv::RecordHead& head = record.head();
  Object object{std::string(field(head, "schema", bj::kind::string).get_string()),
                field(head, "metadata", bj::kind::object).get_object(),
                {}};
  for (const kv::TensorSpec& spec : head.tensors()) object.tensors.push_back({spec, {}});
  record.read([&](size_t tensor, const kv::Source& source) {
    ObjectTensor& found = object.tensors[tensor];
    found.bytes.resize(found.spec.bytes());
    source(found.bytes);
  });
  return object;
}

}  // namespace cohort::store
