// Streams the answers to lines of standard input, as one conversation.   usage: chat MODEL.gguf
#include <assay/error.h>
#include <assay/session.h>
#include <assay/version.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

static_assert(ASSAY_VERSION_MAJOR == 0);

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const auto model = assay::Model::load(argv[1]);
    assay::GenerateOptions options;
    options.sampling = assay::default_sampling(*model);
    options.sampling.temperature = 0;
    options.n_predict = 64;
    auto scheduler = std::make_unique<assay::Scheduler>(model, assay::SchedulerOptions{});
    assay::ChatSession chat(std::move(scheduler), assay::require_chat_template(*model), options, "Answer in one line.");
    const auto show = [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    for (std::string line; std::getline(std::cin, line);) {
      const assay::Generation answer = chat.say(line, show);
      std::fprintf(stderr, "\n[%zu tokens, %.0f a second]\n", answer.ids.size(), answer.decode.tokens_per_second());
    }
  } catch (const assay::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
