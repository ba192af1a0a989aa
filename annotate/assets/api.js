// The server's routes.

/** What the server refused (status, code), or that it cannot be reached (status 0). */
export class ApiError extends Error {
  constructor(status, code, message, wait = 0) {
    super(message);
    Object.assign(this, { status, code, wait });
  }

  /** Whether nobody is logged in any more, or somebody else. */
  get needsLogin() {
    return this.status === 401 || this.code === "csrf";
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

const TIMEOUT = 20_000;

export class Api {
  csrf = "";
  skew = 0; // the server's clock minus ours, in seconds
  #whose = "";

  get(path) {
    return this.#call(path, {});
  }

  async post(path, body) {
    try {
      return await this.#post(path, body);
    } catch (error) {
      // The token is of a login that has been renewed, perhaps in another tab.
      if (error.code === "csrf" && (await this.renew())) return this.#post(path, body);
      throw error;
    }
  }

  /** Who is logged in, and the project; from then on requests are theirs. */
  async me() {
    const me = await this.get("/api/me");
    this.csrf = me.csrf;
    this.#whose = whose(me);
    return me;
  }

  /** Whether the same person is logged in still or again; nothing is ever sent as somebody else. */
  async renew() {
    const me = await this.get("/api/me");
    if (whose(me) !== this.#whose) return false;
    this.csrf = me.csrf;
    return true;
  }

  /** Signs in by the form of the login page; the status, 0 for the way on that follows on success. */
  async signIn(name, password) {
    const form = new URLSearchParams({ name, password });
    const response = await this.#fetch("/login", { method: "POST", body: form, redirect: "manual" });
    return response.status;
  }

  #post(path, body) {
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": this.csrf };
    return this.#call(path, { method: "POST", headers, body: JSON.stringify(body) });
  }

  async #fetch(path, options) {
    try {
      return await fetch(path, { credentials: "same-origin", signal: AbortSignal.timeout(TIMEOUT), ...options });
    } catch (error) {
      throw new ApiError(0, "offline", String(error));
    }
  }

  async #call(path, options) {
    const response = await this.#fetch(path, options);
    const date = Date.parse(response.headers.get("Date") ?? "");
    if (date) this.skew = (date - Date.now()) / 1000;
    const body = await response.json().catch(() => null);
    if (response.ok && body !== null) return body;
    const { code = "unknown", message = response.statusText } = body?.error ?? {};
    // Something that answers 200 without JSON stands between us and the server, such as the login page of a network.
    const status = response.ok ? 0 : response.status;
    throw new ApiError(status, code, message, Number(response.headers.get("Retry-After")) || 0);
  }
}

function whose({ name, project }) {
  return `${project.id} ${name}`;
}
