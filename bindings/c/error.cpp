// Errors, versions and memory of the C interface.
#include <cstdlib>
#include <new>

#include "handles.h"

namespace assay::c {
namespace {

assay_status status_of(Errc code) noexcept {
  switch (code) {
    case Errc::bad_file: return ASSAY_BAD_FILE;
    case Errc::unsupported: return ASSAY_UNSUPPORTED;
    case Errc::out_of_memory: return ASSAY_OUT_OF_MEMORY;
    case Errc::bad_request: return ASSAY_BAD_REQUEST;
    case Errc::io: return ASSAY_IO;
    case Errc::device: return ASSAY_DEVICE;
  }
  return ASSAY_INTERNAL;
}

// Where there is no memory for the object the status alone is told.
assay_status told(assay_error** error, assay_status code, const char* message) noexcept {
  if (error == nullptr) return code;
  try {
    *error = new assay_error{code, message};
  } catch (...) {
    *error = nullptr;
  }
  return code;
}

void* allocated(size_t n_bytes) {
  void* memory = std::malloc(n_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

assay_status failed(assay_error** error) noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return told(error, status_of(e.code), e.what());
  } catch (const std::bad_alloc&) {
    return told(error, ASSAY_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const std::exception& e) {
    return told(error, ASSAY_INTERNAL, e.what());
  } catch (...) {
    return told(error, ASSAY_INTERNAL, "an exception of an unknown type");
  }
}

void refuse(const std::string& what) { throw Error(Errc::bad_request, what); }

char* copied(std::string_view text) {
  auto* copy = static_cast<char*>(allocated(text.size() + 1));
  std::copy(text.begin(), text.end(), copy);
  copy[text.size()] = '\0';
  return copy;
}

int32_t* copied(std::span<const int32_t> ids) {
  auto* copy = static_cast<int32_t*>(allocated(std::max<size_t>(ids.size_bytes(), 1)));
  std::copy(ids.begin(), ids.end(), copy);
  return copy;
}

}  // namespace assay::c

const char* assay_version(void) { return ASSAY_VERSION; }
int32_t assay_version_number(void) {
  return 10000 * ASSAY_VERSION_MAJOR + 100 * ASSAY_VERSION_MINOR + ASSAY_VERSION_PATCH;
}

assay_status assay_error_code(const assay_error* error) { return error == nullptr ? ASSAY_OK : error->code; }
const char* assay_error_message(const assay_error* error) { return error == nullptr ? "" : error->message.c_str(); }
void assay_error_free(assay_error* error) { delete error; }

const char* assay_status_name(assay_status status) {
  switch (status) {
    case ASSAY_OK: return "ok";
    case ASSAY_BAD_FILE: return "bad_file";
    case ASSAY_UNSUPPORTED: return "unsupported";
    case ASSAY_OUT_OF_MEMORY: return "out_of_memory";
    case ASSAY_BAD_REQUEST: return "bad_request";
    case ASSAY_IO: return "io";
    case ASSAY_DEVICE: return "device";
    case ASSAY_INTERNAL: return "internal";
  }
  return "unknown";
}

void assay_free(void* memory) { std::free(memory); }
