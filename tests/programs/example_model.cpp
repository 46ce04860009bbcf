// Writes the small model that the tests of the bindings and the examples talk to.   usage: example_model FILE
#include <cstdio>
#include <exception>

#include "support/talking_llama.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    assay::test::TalkingLlama spec;
    spec.words = {"\u2581", "\u2581the", "\u2581sea"};  // the blank alone, so that any text comes back from its tokens
    spec.chat_template =
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt "
        "%}[assistant]{% endif %}";
    assay::test::talking_llama(spec).write(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
