/**
 * What an engine started by a client inherits. It outlives the terminal, so it gets what finding programs, folders,
 * proxies and devices takes, and no secrets.
 */
const names = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|TZ|TMPDIR|TEMP|TMP|SystemRoot|APPDATA|LOCALAPPDATA|USERPROFILE)$/i;
const families = /^(LC_|HF_|XDG_|PIP_|MASS_|CUDA_|GGML_|VK_)/;
const network = /^(https?_proxy|no_proxy|all_proxy|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|SSL_CERT_DIR)$/i;
const secret = /(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY)/i;

export function engineEnvironment(from: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(from).filter(
      ([name]) => !secret.test(name) && (names.test(name) || families.test(name) || network.test(name)),
    ),
  );
}
