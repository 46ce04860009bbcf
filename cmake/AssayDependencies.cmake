# Third-party libraries: all of them Debian 12 packages, each used in one room.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)   # text/: pre-tokenizer expressions
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)  # text/, chat/: Unicode
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)   # engine/: digests
find_package(Boost 1.74 REQUIRED COMPONENTS json)              # chat/, store/, apps/: JSON
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)           # serve/, store/: SHA-256, TLS; Asio comes with Boost's headers
if(ASSAY_CURL)
  find_package(CURL 7.85)                                      # store/: http, by its headers alone: it is loaded when something is fetched
endif()
find_package(fmt REQUIRED)                                     # messages
pkg_check_modules(EDIT IMPORTED_TARGET libedit)                # apps/: line editing in chat; optional
if(ASSAY_TESTS)
  find_package(GTest REQUIRED)
endif()
