# Completion of `assay` for bash. Commands and flags are asked from the program itself, so that they are always its own.
_assay() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} choices=
  if ((COMP_CWORD == 1)) || [[ ${COMP_WORDS[1]} == help && COMP_CWORD -eq 2 ]]; then
    choices=$("$program" --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
    ((COMP_CWORD == 1)) && choices+=' help --help --version'
  elif [[ $word == -* ]]; then
    choices=$("$program" "${COMP_WORDS[1]}" --help 2>/dev/null | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr ',' ' ')
  else
    case $before in
      --numerics) choices='exact f32 oracle' ;;
      --activations) choices='15 8' ;;
      --backend) choices='auto cpu cuda hybrid-f32' ;;
      --kernels) choices='auto reference avx2 avx512 neon neon-i8mm' ;;
      -ctk | -ctv | --cache-type-k | --cache-type-v) choices='f16 q8_0 f32' ;;
      --color | -co) choices='auto on off' ;;
      -o | --output) choices='md json' ;;
      --against)
        mapfile -t COMPREPLY < <(compgen -W 'exact/15 exact/8 f32 oracle reference avx2 avx512 neon neon-i8mm cpu cuda' -- "$word"; compgen -f -- "$word")
        compopt -o filenames
        return
        ;;
      -f | --file | --html | --ids-file | --dump | --messages | --tools | --variables | --chat-template-file | -sysf | --system-prompt-file)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames
        return
        ;;
      *)
        mapfile -t COMPREPLY < <(compgen -f -X '!*.gguf' -- "$word"; compgen -d -- "$word")
        compopt -o filenames
        return
        ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
}
complete -F _assay assay
