import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.Empty;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;

/** Parses a message of which the schema knows no field. */
final class Main {
    public static void main(String[] args) throws Exception {
        Server.<byte[]>start(Main::message,
            message -> Empty.parseFrom(message).getUnknownFields().getSerializedSize() + " bytes");
    }

    /** A message of two fields, each of size values: one field after the other, or by turns. */
    private static byte[] message(String kind, int size) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        CodedOutputStream out = CodedOutputStream.newInstance(bytes);
        try {
            for (int i = 0; i < 2 * size; i++) {
                out.writeUInt32("turns".equals(kind) ? 1 + i % 2 : 1 + i / size, i % 100);
            }
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }
}
